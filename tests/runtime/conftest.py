"""Small tensors, many threads of Python: one thread of torch is the fastest."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _double_precision_on_one_thread():
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)

"""Which operations took the time, in words."""

import pytest

from reparto.bench._operations import in_words, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "products of matrices"),
        ("aten::mkldnn_convolution", "convolutions"),
        ("Optimizer.step#Adam.step", "the optimizer"),
        ("aten::_foreach_addcdiv_", "the optimizer"),
        ("Memcpy HtoD (Pageable -> Device)", "copies"),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize", "products of matrices"),
        ("void cudnn::ops::nchwToNhwcKernel", "convolutions"),
        ("aten::native_batch_norm", "normalisation"),
        ("aten::max_pool2d_with_indices", "pooling"),
        ("aten::mse_loss_backward", "losses"),
        ("aten::threshold_backward", "work element by element"),
        ("aten::view", "other operations"),
    ],
)
def test_operations_are_told_by_what_they_do(name, kind):
    assert kind_of(name) == kind


def test_a_gpu_that_waits_for_python_is_told():
    told = in_words({"gemm": 0.001}, 0.010, "cuda")
    assert "the GPU waited for 90 % of the 10 ms of a step" in told[1]
    assert len(in_words({"gemm": 0.0095}, 0.010, "cuda")) == 1


def test_what_took_next_to_nothing_is_left_out():
    (told,) = in_words({"aten::mm": 1.0, "aten::relu": 0.001}, 1.0, "cpu")
    assert told == "99.9 % products of matrices (mm)"


def test_no_operations_are_told_as_such():
    assert in_words({}, 1.0, "cpu") == ("no operation was seen",)

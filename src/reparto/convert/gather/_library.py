"""What is known of libraries, by dotted name. Tables, no code that decides."""

from __future__ import annotations

LOADERS = {
    "torch.utils.data.DataLoader",
    "torch.utils.data.dataloader.DataLoader",
    "torch_geometric.loader.DataLoader",
    "torch_geometric.data.DataLoader",
    "torchdata.stateful_dataloader.StatefulDataLoader",
}
MODULES = {"torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"}
OPTIMIZERS = {"torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"}
AVERAGED = {"torch.optim.swa_utils.AveragedModel"}

# What `from … import *` brings, where it must be told apart.
STARS: dict[str, frozenset[str]] = {
    "torch.utils.data": frozenset(
        {
            *("DataLoader", "Dataset", "IterableDataset", "TensorDataset", "Subset"),
            *("ConcatDataset", "random_split", "Sampler", "RandomSampler", "SequentialSampler"),
            *("BatchSampler", "WeightedRandomSampler", "SubsetRandomSampler", "default_collate"),
        }
    ),
    "torch.optim": frozenset(
        {
            *("SGD", "Adam", "AdamW", "Adamax", "Adadelta", "Adagrad", "ASGD", "LBFGS", "NAdam"),
            *("RAdam", "RMSprop", "Rprop", "SparseAdam", "Adafactor", "Muon", "Optimizer"),
        }
    ),
    "torch.optim.lr_scheduler": frozenset(),
}

# Factories of whole models: a call of anything below these names constructs one.
MODEL_FACTORIES = (
    "torchvision.models.",
    "timm.create_model",
    "timm.models.",
    "segmentation_models_pytorch.",
    "torch.hub.load",
    "efficientnet_pytorch.",
    "torch_geometric.nn.",
    "transformers.AutoModel",
)
# Calls that hand back the model (or optimizer, or loader) that they were given.
PASSED_THROUGH = {
    "torch.compile",
    "torch.jit.script",
    "torch.nn.DataParallel",
    "torch.nn.parallel.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel",
    "torch.nn.utils.spectral_norm",
    "torch.nn.utils.weight_norm",
    "copy.deepcopy",
    "copy.copy",
    "torch.autograd.Variable",
    "torch.nn.utils.rnn.pad_sequence",
    "torch.nn.utils.rnn.pack_padded_sequence",
    "sklearn.utils.shuffle",
    "sklearn.model_selection.train_test_split",
}
DATA_PARALLEL = {name for name in PASSED_THROUGH if name.endswith("DataParallel")}
RECURRENT = {"torch.nn.RNN", "torch.nn.LSTM", "torch.nn.GRU"}

# Iterators over their argument, and where its elements stand in what they yield.
SAME_ITERATION = {
    "iter",
    "list",
    "tuple",
    "reversed",
    "sorted",
    "tqdm.tqdm",
    "tqdm.auto.tqdm",
    "tqdm.notebook.tqdm",
    "tqdm.tqdm_notebook",
    "tqdm.autonotebook.tqdm",
    "tqdm.std.tqdm",
    "tqdm.rich.tqdm",
    "rich.progress.track",
    "progressbar.progressbar",
    "alive_progress.alive_it",
    "fastprogress.progress_bar",
    "itertools.cycle",
    "itertools.islice",
    "itertools.chain",
    "itertools.chain.from_iterable",
    "itertools.takewhile",
    "itertools.dropwhile",
}

RANDOM_DRAWS = {
    f"torch.{name}"
    for name in ("randn", "rand", "randint", "normal", "randperm", "bernoulli", "multinomial")
}
NUMPY_DRAWS = ("numpy.random.",)
# Methods of a draw that keep it a draw: torch.randn(…).to(device)
SELF_RETURNING = {
    *("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "long", "int", "bool", "type"),
    *("train", "eval", "requires_grad_", "apply", "share_memory", "detach", "clone", "contiguous"),
    *("compile", "module", "to_empty", "detach_", "normal_", "uniform_", "pin_memory", "fill_"),
}

CLOCKS = {
    "time.time",
    "time.perf_counter",
    "time.monotonic",
    "time.process_time",
    "time.time_ns",
    "time.perf_counter_ns",
    "time.monotonic_ns",
    "time.clock",
    "timeit.default_timer",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "os.getloadavg",
    "os.getpid",
    "os.path.exists",
    "os.path.isfile",
    "os.path.getmtime",
    "os.environ.get",
    "select.select",
    "input",
    "socket.gethostname",
    "shutil.disk_usage",
    "torch.cuda.memory_allocated",
    "torch.cuda.max_memory_allocated",
    "torch.cuda.mem_get_info",
}
CLOCK_PREFIXES = ("psutil.", "pynvml.", "resource.getrusage", "GPUtil.")
# Methods of unknown objects that ask the machine: Path(...).exists()
CLOCK_METHODS = {"exists", "is_file", "elapsed_time"}

ENVIRONMENTS = (
    "gym.make",
    "gymnasium.make",
    "gym.vector.",
    "gymnasium.vector.",
    "gym_super_mario_bros.make",
    "pettingzoo.",
    "unityagents.",
    "dm_control.suite.load",
    "stable_baselines3.",
    "pybullet_envs.",
)

# torch functions whose result is not a tensor.
NOT_TENSORS = (
    "torch.device",
    "torch.cuda.",
    "torch.backends.",
    "torch.manual_seed",
    "torch.set_",
    "torch.get_",
    "torch.is_",
    "torch.no_grad",
    "torch.enable_grad",
    "torch.inference_mode",
    "torch.autocast",
    "torch.amp.",
    "torch.save",
    "torch.load",
    "torch.utils.",
    "torch.distributed.",
    "torch.distributions.",
    "torch.profiler.",
    "torch.Generator",
    "torch.Size",
    "torch.finfo",
    "torch.hub.",
    "torch.mps.",
    "torch.xpu.",
    "torch.accelerator.",
    "torch.multiprocessing.",
    "torch.jit.",
    "torch.optim.",
    "torch.nn.init.",
    "torch.nn.utils.clip_",
    "torch.seed",
    "torch.initial_seed",
    "torch.numel",
)
ARRAYS = ("numpy.", "pandas.", "sklearn.datasets.", "sklearn.preprocessing.", "scipy.")
# Methods of tensors whose result is no tensor.
TO_ARRAY = {"numpy", "tolist", "to_numpy"}
TO_NUMBER = {"item", "dim", "ndimension", "numel", "nelement", "element_size", "get_device"}
BATCH_SIZE_NAMES = {
    *("batch_size", "bs", "bsz", "b_size", "batchsize", "mb_size", "batch_sz", "minibatch_size"),
    *("mini_batch_size", "batchSize", "BATCH_SIZE", "b", "B", "batch_len"),
    *("num_samples_per_batch", "cur_batch_size", "current_batch_size"),
}

SAVES = {
    "torch.save",
    "numpy.save",
    "numpy.savez",
    "numpy.savetxt",
    "pickle.dump",
    "joblib.dump",
    "json.dump",
    "torchvision.utils.save_image",
    "safetensors.torch.save_file",
    "yaml.dump",
}
FOLDERS = {"os.makedirs", "os.mkdir"}  # no decision of weight hangs on them
PLOTS = ("matplotlib.", "seaborn.", "plotly.", "visdom.")
TRACKERS = (
    "wandb.",
    "mlflow.",
    "torch.utils.tensorboard.",
    "tensorboardX.",
    "comet_ml.",
    "neptune.",
    "clearml.",
)
LOGGERS = ("logging.", "loguru.", "csv.writer", "csv.DictWriter", "logger.")

# Programs that share themselves out: dotted prefix, how to launch it, what to call it.
DISTRIBUTED: tuple[tuple[str, str, str], ...] = (
    ("torch.distributed.init_process_group", "torchrun", "torch.distributed"),
    ("torch.distributed.init_device_mesh", "torchrun", "a DeviceMesh"),
    ("torch.distributed.device_mesh.", "torchrun", "a DeviceMesh"),
    ("torch.distributed.fsdp.", "torchrun", "FSDP"),
    ("torch.distributed._composable.fsdp.", "torchrun", "FSDP"),
    ("torch.distributed.tensor.", "torchrun", "DTensor"),
    ("torch.distributed.pipelining.", "torchrun", "pipeline parallelism"),
    ("torch.distributed.rpc.", "torchrun", "torch.distributed.rpc"),
    ("torch.nn.parallel.DistributedDataParallel", "torchrun", "DistributedDataParallel"),
    ("torch.nn.parallel.distributed.", "torchrun", "DistributedDataParallel"),
    ("accelerate.Accelerator", "torchrun", "Accelerate"),
    ("lightning.fabric.", "torchrun", "Lightning Fabric"),
    ("lightning.Fabric", "torchrun", "Lightning Fabric"),
    ("lightning.", "torchrun", "Lightning"),
    ("pytorch_lightning.", "torchrun", "Lightning"),
    ("transformers.Trainer", "torchrun", "a Hugging Face Trainer"),
    ("transformers.Seq2SeqTrainer", "torchrun", "a Hugging Face Trainer"),
    ("trl.", "torchrun", "a Hugging Face Trainer"),
    ("horovod.", "torchrun", "Horovod"),
    ("deepspeed.", "torchrun", "DeepSpeed"),
    ("colossalai.", "torchrun", "Colossal-AI"),
    ("ignite.distributed.", "torchrun", "ignite.distributed"),
    ("torch_xla.", "torchrun", "torch_xla"),
)
PROCESSES: tuple[str, ...] = (
    "torch.multiprocessing.spawn",
    "torch.multiprocessing.start_processes",
    "torch.multiprocessing.Process",
    "torch.multiprocessing.Pool",
    "torch.multiprocessing.get_context",
    "multiprocessing.Process",
    "multiprocessing.Pool",
    "multiprocessing.get_context",
    "concurrent.futures.ProcessPoolExecutor",
    "threading.Thread",
)


def starts(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a dotted name is, or lies below, one of the prefixes."""
    return any(name.startswith(prefix) or name == prefix.rstrip(".") for prefix in prefixes)


def is_loss(name: str) -> bool:
    """Whether a class is a loss by its name."""
    last = name.rsplit(".", 1)[-1].lower()
    return last.endswith(("loss", "criterion")) or last in ("mse", "crossentropy")


def is_optimizer(name: str) -> bool:
    """Whether a dotted name is an optimizer class of torch or of a known package."""
    last = name.rsplit(".", 1)[-1]
    if name.startswith(("torch.optim.lr_scheduler", "torch.optim.swa_utils")):
        return False
    if name.startswith(("torch_optimizer.", "bitsandbytes.optim.", "timm.optim.", "apex.optim")):
        return True
    if name in ("transformers.AdamW", "transformers.optimization.AdamW"):
        return True
    return name.startswith("torch.optim.") and last[:1].isupper()


def is_scheduler(name: str) -> bool:
    """Whether a dotted name is a learning-rate scheduler."""
    return name.startswith("torch.optim.lr_scheduler.") or name.endswith(("Scheduler", "SWALR"))


def is_layer(name: str) -> bool:
    """Whether a dotted name is a class of ``torch.nn`` that constructs a module."""
    last = name.rsplit(".", 1)[-1]
    if name.startswith(("torch.nn.functional", "torch.nn.init", "torch.nn.utils")):
        return False
    return name.startswith("torch.nn.") and last[:1].isupper() and last != "Parameter"

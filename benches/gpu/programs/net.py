"""Networks with random weights, in the usual ways of using PyTorch. It is independent of Pillion.

    net.py --network resnet50|bert|gpt|mlp --task infer|train|generate [--variant ...]
           [--size tiny|small|full]
           --steps N       runs N steps and prints a digest of the results, and losses or sums
           --seconds S     prints "ready"; then for each line of standard input runs steps for S
                           seconds and prints their duration. With --rate R requests arrive at
                           random times (--arrivals poisson|bursts, --seed N), latencies run from
                           a request's due time, and each request is an NVTX range
                           pillion_request. A line of JSON overrides options for that period:
                           {"seconds": 5, "rate": 20}
           --deterministic selects algorithms whose results are bit-identical in every run
           --count         counts launches with PyTorch's own profiler (CUPTI)
           --trace FILE    writes the profiler's trace of the steps there; prints "ready" and waits
                           for a line before them

Prints one line of JSON for each, until its standard input ends.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import time

import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from suite import stats  # noqa: E402

VARIANTS = ("eager", "compile", "graph", "amp", "streams", "loader")
# The profiler's names of the calls that launch kernels.
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel", "cuLaunchKernel", "cuLaunchKernelEx")
SOFTWARE = "73772d677075"  # "sw-gpu"


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width * 4, 1, bias=False), nn.BatchNorm2d(width * 4))
        self.past = nn.Identity() if stride == 1 and inputs == width * 4 else nn.Sequential(
            nn.Conv2d(inputs, width * 4, 1, stride, bias=False), nn.BatchNorm2d(width * 4))

    def forward(self, x):
        return torch.relu(self.body(x) + self.past(x))


def resnet(blocks, width):
    layers, inputs = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], width
    for stage, count in enumerate(blocks):
        for index in range(count):
            layers.append(Bottleneck(inputs, width << stage, 2 if index == 0 and stage > 0 else 1))
            inputs = (width << stage) * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


class Transformer(nn.Module):
    """The shape of BERT, or with a causal mask of GPT."""

    def __init__(self, layers, width, heads, tokens, is_causal):
        super().__init__()
        self.words, self.places = nn.Embedding(8192, width), nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, activation="gelu")
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens) if is_causal else None
        self.register_buffer("mask", mask)
        self.register_buffer("index", torch.arange(tokens))

    def forward(self, x):
        hidden = self.body(self.words(x) + self.places(self.index), mask=self.mask, is_causal=self.mask is not None)
        return self.head(hidden.mean(1))


class Decoder(nn.Module):
    """A layer of a GPT whose keys and values stay in a cache."""

    def __init__(self, width, heads, places):
        super().__init__()
        self.heads, self.places = heads, places
        self.norm, self.norm_out = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache, place):
        """`x` is batch × new tokens × width; `cache` is empty at first, then two tensors
        batch × heads × places × width of a head, with `place` tokens in them."""
        batch, count, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, count, 3, self.heads, width // self.heads)
        query, *new = parts.permute(2, 0, 3, 1, 4)
        if not cache:
            cache += [tensor.new_zeros(batch, self.heads, self.places, width // self.heads) for tensor in new]
        for kept, tensor in zip(cache, new):
            kept[:, :, place:place + count] = tensor
        keys, values = (kept[:, :, :place + count] for kept in cache)
        attended = nn.functional.scaled_dot_product_attention(query, keys, values, is_causal=count > 1)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, count, width))
        return x + self.body(self.norm_out(x))


class Generator(nn.Module):
    """Text generation of a GPT, as a server does it for a batch of prompts: all of a prompt at
    once, then token by token, each the most probable one."""

    def __init__(self, layers, width, heads, tokens, generated):
        super().__init__()
        self.generated = generated
        self.words, self.places = nn.Embedding(8192, width), nn.Embedding(tokens + generated, width)
        self.layers = nn.ModuleList(Decoder(width, heads, tokens + generated) for _ in range(layers))
        self.head = nn.Linear(width, 8192)

    def forward(self, prompts):
        """The last logits, batch × vocabulary."""
        caches, place, words = [[] for _ in self.layers], 0, prompts
        for _ in range(self.generated):
            hidden = self.words(words) + self.places.weight[place:place + words.shape[1]]
            for layer, cache in zip(self.layers, caches):
                hidden = layer(hidden, cache, place)
            place += words.shape[1]
            logits = self.head(hidden[:, -1])
            words = logits.argmax(-1, keepdim=True)
        return logits


def network(name, size, task):
    """The network, and a function that makes a batch of its inputs on the host."""
    if name == "mlp":
        return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1000)), lambda batch: torch.randn(batch, 256)
    if name == "resnet50":
        blocks, width, side = {"tiny": ([1, 1], 8, 32), "small": ([3, 4, 6, 3], 64, 160), "full": ([3, 4, 6, 3], 64, 224)}[size]
        return resnet(blocks, width), lambda batch: torch.randn(batch, 3, side, side)
    layers, width, heads, tokens = {"tiny": (1, 64, 2, 16), "small": (4, 768, 12, 128), "full": (12, 768, 12, 384)}[size]
    if task == "generate":
        tokens //= 4
        generated = {"tiny": 4, "small": 16, "full": 32}[size]
        return Generator(layers, width, heads, tokens, generated), lambda batch: torch.randint(0, 8192, (batch, tokens))
    return (Transformer(layers, width, heads, tokens, name == "gpt"),
            lambda batch: torch.randint(0, 8192, (batch, tokens)))


class Work:
    """A model with its inputs. `step()` runs a request or an iteration and returns the output."""

    def __init__(self, options):
        self.options = options
        is_training = options.task == "train"
        torch.manual_seed(0)
        model, self.draw = network(options.network, options.size, options.task)
        self.model = model.cuda().train(is_training)
        self.labels = torch.arange(options.batch) % 1000
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9) if is_training else None
        self.scaler = torch.amp.GradScaler("cuda") if options.variant == "amp" and is_training else None
        self.side = torch.cuda.Stream() if options.variant == "streams" else None
        self.forward = torch.compile(self.model) if options.variant == "compile" else self.model
        self.graph, self.inputs = None, None
        self.loader = self.batches() if options.variant == "loader" else None
        if options.variant == "graph":
            self.capture()

    def batches(self):
        """Batches from two worker processes."""
        data = torch.utils.data.TensorDataset(self.draw(64), torch.arange(64) % 1000)
        while True:
            yield from torch.utils.data.DataLoader(data, self.options.batch, num_workers=2, pin_memory=True, drop_last=True)

    def capture(self):
        self.inputs = self.draw(self.options.batch).cuda()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.inference_mode():
            for _ in range(3):
                self.model(self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self.graph):
            self.output = self.model(self.inputs)

    def batch(self):
        if self.loader:
            inputs, labels = next(self.loader)
            return inputs.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        inputs = self.draw(self.options.batch)
        if self.side is None:
            return inputs.cuda(), self.labels.cuda()
        with torch.cuda.stream(self.side):
            moved = inputs.pin_memory().cuda(non_blocking=True), self.labels.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.side)
        for tensor in moved:
            tensor.record_stream(torch.cuda.current_stream())
        return moved

    def step(self):
        if self.graph:
            self.inputs.copy_(self.draw(self.options.batch))
            self.graph.replay()
            return self.output
        inputs, labels = self.batch()
        amp = torch.autocast("cuda", dtype=torch.float16) if self.options.variant == "amp" else contextlib.nullcontext()
        if self.optimizer is None:
            with torch.inference_mode(), amp:
                return self.forward(inputs)
        with amp:
            loss = nn.functional.cross_entropy(self.forward(inputs).float(), labels)
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            loss.backward()
            self.optimizer.step()
        return loss


def fixed(work, steps):
    """Run `steps` steps and return a digest and sums of the results, for training also the sum of
    the weights."""
    digest, values = hashlib.sha256(), []
    for _ in range(steps):
        with torch.profiler.record_function("pillion_step"):
            output = work.step().detach().float().cpu()
        digest.update(output.numpy().tobytes() if has_numpy() else bytes(str(output.tolist()), "ascii"))
        values.append(float(output.sum()))
    if work.optimizer:
        values.append(float(sum(parameter.detach().double().sum() for parameter in work.model.parameters())))
    return {"digest": digest.hexdigest(), "values": values}


def has_numpy():
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def warm(work, steps):
    """Run the warm-up steps, then print "ready"."""
    for _ in range(steps):
        work.step()
    torch.cuda.synchronize()
    print("ready", flush=True)


def ordered(options, line):
    """The options, overridden by those in a line of standard input."""
    order = json.loads(line) if line.startswith("{") else {}
    return argparse.Namespace(**{**vars(options), **order})


def timed(work, options):
    """Run steps for `options.seconds`."""
    begin = time.perf_counter()
    if options.rate is None:
        steps, ends = 0, begin + options.seconds
        while time.perf_counter() < ends:
            output = work.step()
            steps += 1
            # Each inference is a request and waits for its result; a training reads its loss every
            # ten steps.
            if options.task != "train" or steps % 10 == 0:
                output.float().sum().item()
        torch.cuda.synchronize()
        took = time.perf_counter() - begin
        return {"steps": steps, "per_s": steps / took, "step_ms": 1e3 * took / steps}
    draw = stats.bursts if options.arrivals == "bursts" else stats.poisson
    latencies_ms = []
    for due in draw(options.rate, options.seconds, options.seed):
        while (wait := begin + due - time.perf_counter()) > 0:
            time.sleep(wait - 2e-4 if wait > 4e-4 else 0)
        with torch.cuda.nvtx.range("pillion_request"):
            work.step().float().sum().item()
        latencies_ms.append(1e3 * (time.perf_counter() - begin - due))
    return {"latencies_ms": latencies_ms}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=("resnet50", "bert", "gpt", "mlp"), default="mlp")
    parser.add_argument("--task", choices=("infer", "train", "generate"), default="infer")
    parser.add_argument("--variant", choices=VARIANTS, default="eager")
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="small")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--arrivals", choices=("poisson", "bursts"), default="poisson")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--trace", metavar="FILE")
    return parser.parse_args()


def profiled(options):
    """PyTorch's profiler if an option needs it. It must start before CUDA is initialised."""
    if not (options.count or options.trace):
        return contextlib.nullcontext()
    activity = torch.profiler.ProfilerActivity
    activities = [activity.CPU, activity.CUDA] if options.trace else [activity.CUDA]
    return torch.profiler.profile(activities=activities, record_shapes=bool(options.trace))


def make_deterministic():
    """Select deterministic algorithms. Call it before any use of CUDA: cuBLAS reads its variable
    when it creates a handle."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False


def tell(told):
    """Print a line of JSON, with the device memory that PyTorch's allocator has reserved now, and
    the sum of all that it ever reserved."""
    memory = torch.cuda.memory_stats()
    told["reserved_bytes"] = memory.get("reserved_bytes.all.current", 0)
    told["reserved_in_all_bytes"] = memory.get("reserved_bytes.all.allocated", 0)
    print(json.dumps(told), flush=True)


def main():
    options = parsed()
    if options.deterministic:
        make_deterministic()
    if str(getattr(torch.cuda.get_device_properties(0), "uuid", "")).endswith(SOFTWARE):
        torch.backends.cudnn.enabled = False  # NVIDIA's cuDNN refuses other drivers.
    if not options.steps:
        work = Work(options)
        warm(work, options.warm_up)
        for line in sys.stdin:
            tell(timed(work, ordered(options, line)))
        return
    with profiled(options) as profiler:
        work = Work(options)
        if options.trace:
            warm(work, 0)
            sys.stdin.readline()
        told = fixed(work, options.steps)
        torch.cuda.synchronize()
    if options.count:
        names = [event.name() for event in profiler.profiler.kineto_results.events()]
        told["launches_profiled"] = sum(name in LAUNCHES for name in names)
        told["graph_launches_profiled"] = names.count("cudaGraphLaunch")
    if options.trace:
        profiler.export_chrome_trace(options.trace)
    tell(told)
    sys.stdin.read()


if __name__ == "__main__":
    main()

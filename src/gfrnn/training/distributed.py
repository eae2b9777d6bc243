"""Training in several processes: the only file that knows torch.distributed.

Who a process is, RANK and WORLD_SIZE, and where they meet, MASTER_ADDR and MASTER_PORT, is in the environment: torchrun
sets it, and so can srun or mpirun. Numbers that decide are gathered and added in the order of the ranks, so that all
processes hold the same bits; gradients are summed in a few flat buckets, sent while the backward pass goes on.

An error in one process is an error of all. Whoever meets one writes it down in the store where they met and closes its
connections; that wakes the others out of whatever they wait for, and they find it there. A process that is gone
without a word, or silent for longer than the time limit, is `LostContact`; who cannot even be told so in time, because
the way to the store is cut too, is ended by the watchdog.
"""

import contextlib
import functools
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from gfrnn.errors import GfrnnError, LostContact, UsageError, explain, of_exit_code
from gfrnn.tasks.world import World
from gfrnn.training import whereabouts
from gfrnn.training.bucket import Bucket
from gfrnn.training.watchdog import Watchdog
from gfrnn.training.whereabouts import Place

T = TypeVar("T")
LINGER = 10.0  # seconds the first process waits for the others to learn of an error
GRACE = 5.0  # seconds beyond the time limit after which a process that still waits is ended
MESSAGE = 1 << 28  # bytes per broadcast


def join() -> World:
    """The world the environment speaks of: that of one process unless it says otherwise."""
    place = whereabouts.find()
    return World() if place is None else Processes(place)


def gist(error: Exception) -> str:
    """What torch says, without the place in its source and its advice.

    >>> gist(RuntimeError("[/src/pair.cc:553] Connection closed by peer [127.0.0.1]:1. This is typically ..."))
    'Connection closed by peer [127.0.0.1]:1'
    """
    return re.sub(r"^\[[^\]]*\]\s*", "", str(error).splitlines()[0]).split(". ")[0].rstrip(".")


class Processes(World):
    """Several processes, this one of rank `rank` out of `size`."""

    def __init__(self, place: Place) -> None:
        self.rank, self.size, self.buckets = place.rank, place.size, list[Bucket]()
        self.patience, self.watchdog = place.seconds + GRACE, Watchdog()
        self.silence = self.lost(f"no answer within {self.patience:g} s")
        try:
            with self.watchdog.within(place.seconds + self.patience, self.silence):
                self.meet(place)
        except BaseException:
            self.watchdog.stop()
            raise

    def meet(self, place: Place) -> None:
        limit = timedelta(seconds=place.seconds)
        cuda = torch.cuda.is_available() and dist.is_nccl_available()
        if cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)) % torch.cuda.device_count())
        try:
            store, _, _ = next(dist.rendezvous("env://", timeout=limit))
            self.notes = dist.PrefixStore("gfrnn", store)
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                store=dist.PrefixStore("group", store),
                rank=self.rank,
                world_size=self.size,
                timeout=limit,
            )
            self.most(0.0)  # connections are made at the first use
        except (RuntimeError, OSError, LostContact) as error:
            # torchrun says where to meet, and a later attempt may find everybody there.
            kind = LostContact if "TORCHELASTIC_RUN_ID" in os.environ else UsageError
            raise kind(
                f"process {self.rank} of {self.size} did not find the others at {place.meeting} "
                f"(MASTER_ADDR:MASTER_PORT) within {place.seconds:g} s: {gist(error)}"
            ) from error

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if error is None:
                try:
                    self.most(0.0)  # all have come to the end
                except GfrnnError as late:
                    self.leave(late)
                    raise
                dist.destroy_process_group()
            else:
                self.leave(error)
        finally:
            self.watchdog.stop()

    def leave(self, error: BaseException) -> None:
        """Tell the others, and let one speak for all."""
        with self.watchdog.within(GRACE if isinstance(error, LostContact) else LINGER + GRACE, error):
            self.tell(error)

    def tell(self, error: BaseException) -> None:
        # torchrun sends this to whoever is still there when the first process has left; we are on our way.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lost = isinstance(error, LostContact)
        told: GfrnnError | None = None
        try:
            if not lost:
                sentence, code = explain(error)
                mine = json.dumps([self.rank, code, sentence])
                rank, code, sentence = json.loads(self.notes.compare_set("error", "", mine))
                if (sentence, code) != explain(error):
                    told = self.rebuilt(rank, code, sentence)
            self.notes.add("seen", 1)
            reached = True
        except RuntimeError:  # the store is gone, and the first process with it
            reached = False
        dist.destroy_process_group()
        if self.first and not lost:
            self.linger()
        for one in (error, told):
            if one is not None:
                one.said_elsewhere = reached and not self.first  # type: ignore[attr-defined]
        if told is not None and told.exit_code != explain(error)[1]:
            raise told from error

    def linger(self) -> None:
        """The store usually lives in this process: stay until the others have looked."""
        end = time.monotonic() + LINGER
        with contextlib.suppress(RuntimeError):
            while self.notes.add("seen", 0) < self.size and time.monotonic() < end:
                time.sleep(0.02)

    @contextlib.contextmanager
    def contact(self) -> Iterator[None]:
        """Around everything that needs the others: torch reports all that can go wrong there as a RuntimeError."""
        with self.watchdog.within(self.patience, self.silence):
            try:
                yield
            except RuntimeError as error:
                raise self.reason(error) from error

    def reason(self, error: RuntimeError) -> GfrnnError:
        """What another process said before it left, or that it left without a word."""
        with contextlib.suppress(RuntimeError):
            if self.notes.check(["error"]):
                return self.rebuilt(*json.loads(self.notes.get("error")))
        return self.lost(gist(error))

    def lost(self, why: str) -> LostContact:
        return LostContact(
            f"process {self.rank} lost contact with another one, which died, hangs or cannot be reached "
            f"({why}): the same command continues from the last checkpoint"
        )

    def rebuilt(self, rank: int, code: int, sentence: str) -> GfrnnError:
        return of_exit_code(
            code, sentence if rank == 0 or sentence.startswith("process ") else f"process {rank}: {sentence}"
        )

    def alike(self, facts: dict[str, Any], what: str) -> None:
        facts = json.loads(json.dumps(facts))
        theirs = self.from_first(lambda: facts, lambda f: json.dumps(f).encode(), json.loads)
        keys = [key for key in {**theirs, **facts} if theirs.get(key) != facts.get(key)]
        if keys:
            said = "; ".join(f"{key} is {facts.get(key)!r}, there {theirs.get(key)!r}" for key in keys)
            raise UsageError(f"process {self.rank} has {what} other than process 0: {said}")
        self.most(0.0)  # nobody goes on before all have compared

    def from_first(self, make: Callable[[], T], pack: Callable[[T], bytes], unpack: Callable[[bytes], T]) -> T:
        if self.first:
            value = make()
            content = torch.from_numpy(np.frombuffer(bytearray(pack(value)), dtype=np.uint8))
            self.broadcast(torch.tensor([len(content)]))
            self.broadcast(content)
            return value
        length = torch.zeros(1, dtype=torch.int64)
        self.broadcast(length)
        content = torch.empty(int(length), dtype=torch.uint8)
        self.broadcast(content)
        return unpack(content.numpy().tobytes())

    def broadcast(self, tensor: Tensor) -> None:
        """Overwrite `tensor` with the first process's."""
        for part in tensor.view(-1).split(MESSAGE):
            with self.contact():
                dist.broadcast(part, src=0)

    @torch.no_grad()
    def spread(self, model: nn.Module) -> None:
        for tensor in model.state_dict().values():
            whole = tensor.contiguous()
            self.broadcast(whole)
            tensor.copy_(whole)

    def watch(self, model: nn.Module) -> None:
        """A bucket for each part of the model, the last first: that is how the backward pass comes by them."""
        self.spread(model)
        parts: dict[str, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            parts.setdefault(name.partition(".")[0], []).append(parameter)
        self.buckets = [Bucket(parameters) for parameters in reversed(parts.values())]
        for bucket in self.buckets:
            for place, parameter in enumerate(bucket.parameters):
                parameter.register_post_accumulate_grad_hook(functools.partial(self.arrived, bucket, place))

    def arrived(self, bucket: Bucket, place: int, parameter: nn.Parameter) -> None:
        bucket.take(place)
        self.send()

    def send(self) -> None:
        """Send what is complete, in the same order in all processes."""
        for bucket in self.buckets:
            if bucket.missing:
                return
            if bucket.work is None:
                with self.contact():
                    bucket.work = dist.all_reduce(bucket.flat, async_op=True)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        for bucket in self.buckets:
            for place, parameter in enumerate(bucket.parameters):
                if parameter.grad is None:
                    bucket.take(place)
        self.send()
        for bucket in self.buckets:
            with self.contact():
                bucket.work.wait()
            bucket.reset()

    def numbers(self, numbers: Sequence[float]) -> list[list[float]]:
        """Everyone's numbers, in the order of the ranks."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        everyone = [torch.empty_like(mine) for _ in range(self.size)]
        with self.contact():
            dist.all_gather(everyone, mine)
        return [one.tolist() for one in everyone]

    def total(self, *numbers: float) -> list[float]:
        return [sum(column) for column in zip(*self.numbers(numbers), strict=True)]

    def most(self, *numbers: float) -> list[float]:
        return [max(column) for column in zip(*self.numbers(numbers), strict=True)]

    def gather(self, state: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
        return tuple(self.gather_rows(part, count) for part in state)

    def gather_rows(self, part: Tensor, count: int) -> Tensor:
        """(L, own rows, H) -> (L, count, H): sent as equally large pieces, of which the last row may be empty."""
        L, rows, H = part.shape
        piece = part.new_zeros(L, -(-count // self.size), H)
        piece[:, :rows] = part
        everyone = [torch.empty_like(piece) for _ in range(self.size)]
        with self.contact():
            dist.all_gather(everyone, piece)
        shares = [count * (rank + 1) // self.size - count * rank // self.size for rank in range(self.size)]
        return torch.cat([one[:, :share] for one, share in zip(everyone, shares, strict=True)], dim=1)


def torchrun(words: Sequence[str], signals: Sequence[signal.Signals]) -> tuple[dict[int, int], int]:
    """Run torchrun in this process. The exit codes of the processes that failed, by rank, and the signal that ended it.

    The first of the `signals` is passed on to the processes, and torchrun waits until they are done; more are ignored.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    def stop(number: int, frame: Any) -> None:
        for one in signals:
            signal.signal(one, signal.SIG_IGN)
        raise SignalException(f"signal {number}", signal.Signals(number))

    for one in signals:
        signal.signal(one, stop)
    try:
        run(parse_args(["--signals-to-handle=SIGQUIT", *words]))  # it must have one, and is left this one
    except SignalException as stopped:
        return {}, stopped.sigval
    except ChildFailedError as failed:
        return {rank: failure.exitcode for rank, failure in failed.failures.items()}, 0
    return {}, 0

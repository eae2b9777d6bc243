"""The training loop: one for every task.

A task is a class whose constructor takes its two groups of options and the seed (one that reads a text also, by
the name `known`, the symbols of the model that training starts from), and which has

    name, metric, higher_is_better   e.g. "hutter", "bpc", False: the validation metric that chooses the best model
    rows                             rows of the global minibatch; each owns its stream of data and its hidden state
    reads                            a few words: what it reads, e.g. "enwik8"
    characters                       symbols per update, all rows together; `growth`: how many times as many, and when
    epoch                            updates per pass through the training data (may be a fraction)
    model_class                      what build_model makes, a `models.pretrained.Pretrained`
    build_model(seed)                the model, freshly initialised
    batch(seed, step, rows)          the data of update `step` for a slice of the rows, with a method `to(device)`: a
                                     pure function of its arguments
    initial_state(model)             the zero state of all rows; None if nothing is carried from update to update
    carried(state, seed, step, rows) what update `step` starts from (None: zeros) of what the one before left to `rows`
    loss(model, batch, state)        (sum of nats, symbols counted, state after: None, a tensor (L,B,H), or a pair)
    validate(model, full, tick, world)  {metric: ..., more: ...}, by all processes of the world together, each its
                                     share; all call `tick()` between the same portions of work, it may raise
    validates_all()                  whether validate(full=False) is already the whole validation set
    identity()                       JSON-able: what a resumed run must find unchanged (e.g. the data's checksum)
    notes()                          sentences for the user at the start
    show(nats)                       the training loss in the task's own unit, e.g. "1.842 BPC"

Everything random in update s is a function of (seed, s), and all else that is carried from update to update is in the
checkpoint: that is why a resumed run equals an undisturbed one bit for bit. Joint decisions go through `World`.
"""

import math
import time
from typing import Any

import torch

from gfrnn.errors import NonFinite
from gfrnn.models.precision import precisely
from gfrnn.models.pretrained import Pretrained
from gfrnn.progress import Progress
from gfrnn.tasks.world import World, flatten, unflatten
from gfrnn.training import optim, persist
from gfrnn.training.budget import Budget, Stages
from gfrnn.training.checkpoint import Checkpoints
from gfrnn.training.config import Config
from gfrnn.training.counters import Counters
from gfrnn.training.init import build
from gfrnn.training.runlog import RunLog
from gfrnn.training.signals import MEANING, Signals

VALIDATIONS = 20  # in a budget, unless --validate-every says otherwise
VALIDATION_REST = 9  # in a budget of minutes a validation waits for so many times as long as the last one took
CHECKPOINT_SECONDS = 300.0  # between checkpoints, unless --checkpoint-every says otherwise
CPU = torch.device("cpu")
BAD_UPDATES = 20  # so many in a row without a finite loss and gradient, and training gives up


class Stop(Exception):
    """Raised out of a validation when a signal has arrived."""


class Trainer:
    """One run, from wherever it is (see persist.py) to the end of its budget."""

    validated_at: float
    validation_took: float

    def __init__(
        self,
        config: Config,
        task: Any,
        checkpoints: Checkpoints,
        log: RunLog,
        progress: Progress,
        world: World,
        start: Pretrained | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.task, self.checkpoints, self.log = task, checkpoints, log
        self.progress, self.world = progress, world
        self.seed = config.run.seed
        self.configure(config)
        self.device = device
        self.model = build(task, self.seed, start, device)
        world.watch(self.model)
        self.named = dict(self.model.named_parameters())
        self.parameters = list(self.named.values())
        self.optimizer = optim.build(config.optimizer, self.named)
        self.averages = optim.Averages(self.model, config.optimizer.ema)
        self.explosions = optim.Explosions(config.optimizer.explode)
        self.signals = Signals()
        self.counters = Counters(identity=task.identity())
        self.step = self.first_step = 0
        self.state: Any = None
        self.start_clock()

    def configure(self, config: Config) -> None:
        self.config, self.stages = config, Stages(config, self.task.characters, self.task.epoch, self.task.growth)

    @property
    def budget(self) -> Budget:
        return self.stages.budgets[self.counters.stage]

    @property
    def finished(self) -> bool:
        return self.counters.done and self.counters.stage == self.stages.last

    def run(self) -> Counters:
        """Train to the end of the budget. A signal saves and raises; the same run goes on from there."""
        self.model.train()
        with self.signals:
            if self.step == 0:
                self.save()
            while self.goes_on():
                self.agree()
                if self.validation_due():
                    self.validate()
                    self.agree()
                if self.stop_signal:
                    self.save()
                    raise MEANING[self.stop_signal](f"saved at update {self.step}; the same command continues")
                if self.counters.done:
                    continue
                self.update()
                if self.step % self.config.run.log_every == 0:
                    self.record()
                if self.checkpoint_due():
                    self.save()
        self.show()
        return self.counters

    def goes_on(self) -> bool:
        """Whether there is more to do. Where a budget ended that was made larger since, the larger one begins."""
        counters, stages = self.counters, self.stages
        if counters.done and not self.finished:
            counters.stage += 1
            counters.done, counters.stale = False, 0
            counters.validations = int(stages.used_at_end(counters.stage - 1, counters.stage) * VALIDATIONS)
            budgets = [limits.budget for limits in (*self.config.earlier, self.config.run)]
            before, after = budgets[counters.stage - 1 : counters.stage + 1]
            self.log.write("extend", self.step, before=before, after=after)
        return not counters.done

    def agree(self) -> None:
        """The only place where clocks and signals, which differ between processes, enter decisions."""
        now = time.monotonic()
        used = self.budget.fraction(self.step, self.seconds())
        rested = self.budget.seconds is None or now - self.validated_at >= VALIDATION_REST * self.validation_took
        flags = self.world.most(used, now - self.saved_at, rested, self.signals.number)
        self.used, self.waited = flags[:2]
        self.rested, self.stop_signal = bool(flags[2]), int(flags[3])

    def update(self) -> None:
        """One minibatch: forward, backward, and, if all is well, one step of the optimizer."""
        rows = self.world.rows(self.task.rows)
        self.state = self.task.carried(self.state, self.seed, self.step, rows)
        batch = self.task.batch(self.seed, self.step, rows).to(self.device)
        optim.seed(self.world.seed(self.seed, self.step), self.device)  # dropout
        with precisely(self.config.run.precision, self.model):
            nats, count, state = self.task.loss(self.model, batch, self.state)
        symbols, total = self.world.total(count, float(nats.detach()))
        (nats / symbols).backward()
        self.world.sum_gradients(self.parameters)
        norm = optim.gradient_norm(self.parameters)
        if self.explosions.exploded(norm if math.isfinite(total) else math.nan):
            self.skip(total, norm)
        else:
            self.apply(norm)
            self.state = unflatten(tuple(part.detach() for part in flatten(state)))
            self.counters.nats += total
            self.counters.symbols += symbols
            self.counters.norm = max(self.counters.norm, norm)
        self.optimizer.zero_grad(set_to_none=True)
        self.counters.characters += self.task.characters * self.task.growth.at(self.step)
        self.step += 1
        if self.progress.due():
            self.show()

    def apply(self, norm: float) -> None:
        self.counters.bad_in_a_row = 0
        rate = self.learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        optim.shrink(self.named, rate * self.config.optimizer.weight_decay)
        optim.clip_and_step(self.optimizer, norm, self.config.optimizer.clip)
        self.averages.update(self.model, self.step)

    def skip(self, nats: float, norm: float) -> None:
        """Leave the weights alone; forget the state, which may be what went wrong; halve the learning rate if due."""
        halved = self.explosions.halves(self.step)
        finite = math.isfinite(nats) and math.isfinite(norm)
        self.counters.halvings += halved
        self.counters.skipped += 1
        self.counters.bad_in_a_row = 0 if finite else self.counters.bad_in_a_row + 1
        self.state = None
        rate = self.learning_rate()
        self.log.write("skip", self.step, nats=str(nats), norm=str(norm), halved=halved, learning_rate=rate)
        why = f"gradient norm {norm:.3g}" if finite else f"not finite (loss {nats:.3g}, gradient norm {norm:.3g})"
        self.progress.say(f"update {self.step} skipped: {why}{'; learning rate halved' if halved else ''}")
        if self.counters.bad_in_a_row >= BAD_UPDATES:
            raise NonFinite(
                f"{self.checkpoints.run}: loss or gradient were not finite {BAD_UPDATES} times in a row, up to update "
                f"{self.step}; the last checkpoint is from before (a smaller --learning-rate may help)"
            )

    def learning_rate(self) -> float:
        factor = self.stages.factor(self.counters.stage, self.step, self.used)
        return self.config.optimizer.learning_rate * factor * 0.5**self.counters.halvings

    def start_clock(self) -> None:
        self.started_at = self.saved_at = self.validated_at = time.monotonic()
        self.seconds_before = self.counters.seconds
        self.used, self.waited, self.validation_took = 0.0, 0.0, 0.0
        self.rested, self.stop_signal = True, 0

    def seconds(self) -> float:
        """Wall-clock spent on this run; of earlier processes, what led to the checkpoint."""
        return self.seconds_before + time.monotonic() - self.started_at

    def over(self) -> bool:
        return self.stages.over(self.counters.stage, self.step, self.used)

    def validation_due(self) -> bool:
        if self.counters.validated_step == self.step:
            return False
        if self.over():
            return True
        if self.config.run.validate_every:
            return self.step > 0 and self.step % self.config.run.validate_every == 0
        return self.rested and int(self.used * VALIDATIONS) > self.counters.validations

    def validate(self) -> None:
        """Measure, keep the best, see whether this is the end, and commit. A signal leaves it to be done again."""
        counters, task = self.counters, self.task
        began = time.monotonic()
        try:
            with self.averages.inside(self.model), precisely(self.config.run.precision, self.model):
                metrics = task.validate(self.model, False, self.tick, self.world)
        except Stop:
            return
        self.validated_at = time.monotonic()
        self.validation_took = self.validated_at - began
        value = metrics[task.metric]
        if not math.isfinite(value):
            raise NonFinite(f"{self.checkpoints.run}: the validation {task.metric} is {value} at update {self.step}")
        better = counters.best is None or (value > counters.best if task.higher_is_better else value < counters.best)
        if better:
            counters.best, counters.best_step = value, self.step
        counters.stale = 0 if better else counters.stale + 1
        counters.validations = max(counters.validations + 1, int(self.used * VALIDATIONS))
        counters.validated_step = self.step
        patience = self.config.run.patience if counters.stage == self.stages.last else 0
        counters.done = self.over() or 0 < patience <= counters.stale
        self.record()
        where = {"characters": counters.characters, "seconds": round(self.seconds(), 3)}
        self.log.write("valid", self.step, **metrics, **where, best=better)
        self.save()
        if better and self.world.first:
            persist.write_best(self, metrics)
        self.progress.say(f"update {self.step}: validation {task.metric} {value:.4f}{' (best)' if better else ''}")

    def tick(self) -> None:
        """Leave a validation when a signal has come, to any process: all leave it here."""
        if any(self.world.most(self.signals.number)):
            raise Stop

    def record(self) -> None:
        """A training record of the updates since the last one."""
        counters = self.counters
        if counters.symbols:
            self.log.write(
                "train",
                self.step,
                nats=counters.nats / counters.symbols,
                norm=counters.norm,
                learning_rate=self.learning_rate(),
                characters=counters.characters,
                seconds=round(self.seconds(), 3),
            )
        counters.nats, counters.symbols, counters.norm = 0.0, 0.0, 0.0

    def show(self) -> None:
        counters = self.counters
        portions = self.task.growth.portions(self.step) - self.task.growth.portions(self.first_step)
        rate = portions * self.task.characters / max(time.monotonic() - self.started_at, 1e-9)
        loss = f"  {self.task.show(counters.nats / counters.symbols)}" if counters.symbols else ""
        best = f"  best {counters.best:.4f}" if counters.best is not None else ""
        pace = f"  {rate:,.0f} chars/s" if self.step > self.first_step else ""
        self.progress.show(1.0 if counters.done else self.used, f"update {self.step}{loss}{best}{pace}")

    def checkpoint_due(self) -> bool:
        every = self.config.run.checkpoint_every
        return self.step % every == 0 if every else self.waited >= CHECKPOINT_SECONDS

    def save(self) -> None:
        """Commit a checkpoint."""
        snapshot = persist.take(self)
        if self.world.first:
            self.log.sync()
            self.checkpoints.save(snapshot, self.counters.best_step)
        self.saved_at, self.waited = time.monotonic(), 0.0

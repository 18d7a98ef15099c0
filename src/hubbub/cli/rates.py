"""What this machine takes for the parts of a step, measured now: the rates of a forecast.

Every rate is that of the function that does the work in a round, on vectors as long as the study's
and on made-up records of its shape, on one thread at a time. Medians of processor seconds, so
that other work on the machine disturbs them little; only the disk is timed by the clock. Nothing of
a data set is read.
"""

from __future__ import annotations

import hashlib
import resource
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count, cycle
from math import ceil
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from hubbub.assurance.ledger import Ledger
from hubbub.assurance.ledger.charging import entry_of, kind_of
from hubbub.cli.bench_command import Work, seconds
from hubbub.disk import write_bytes
from hubbub.network.engine import in_process
from hubbub.network.envelope import NO_SESSION, answer, read_answer, read_request, request
from hubbub.planning import SUM_MARGIN, Plan, largest_batch, record_shape
from hubbub.planning.loads import Rates
from hubbub.protocol import ring
from hubbub.protocol.agreement.key_agreement import SESSION_BYTES, Session
from hubbub.protocol.agreement.mask_stream import MaskStream
from hubbub.protocol.identity import Keys
from hubbub.protocol.noise import add_noise_and_round
from hubbub.protocol.randomness import KEY_BYTES, SecureSource
from hubbub.protocol.round import Charge, RoundParameters, decoded
from hubbub.protocol.round.projected_sum import clipped_sum, draw_of
from hubbub.protocol.round.round_parameters import Parameters
from hubbub.protocol.wire import HEADER_BYTES
from hubbub.session.ask import Call
from hubbub.session.layout import round_parameters_of
from hubbub.study.tabular import Records

_TRIES = 9
_FEWEST, _MOST = 1 << 12, 1 << 21  # numbers of the vectors on which rates are measured
_MASKS = 8
_PARTIES = 16
_SMALL = bytes(HEADER_BYTES + 64)
_MOST_RECORDS = 4096  # that are made up
_DIGEST = bytes(32)


@dataclass(frozen=True, kw_only=True)
class _Spent:
    """Processor seconds of some work, median and mean; by the clock its waits, and the least."""

    processor: float
    mean: float
    waited: float
    least: float


def measured(plan: Plan, *, shared: bool = False) -> Rates:
    """This machine's rates for a study, in a second or two.

    The clipped sum and the update need hubbub[learn], and a model that can be built from what is
    public; without, they are None.

    Args:
        plan: of the study; it must know the model's size.
        shared: whether silos share this machine: then a clipped sum is made on one thread and
            counted in processor seconds; else on as many as torch takes, and by the clock.
    """
    base = _peak()
    found = _of_vectors(plan) | _of_messages()
    charge = _charged(plan)
    learnt = _learnt(plan, shared) if _has_torch() else None
    return Rates(
        **found,
        charge=charge.processor,
        charge_wait=charge.waited,
        sync=_synced(),
        gradient=learnt.gradient if learnt else None,
        update=learnt.update.processor if learnt else None,
        update_wait=learnt.update.waited if learnt else 0.0,
        base=base,
        learning_base=learnt.base if learnt else base,
        record=learnt.record if learnt else 0,
    )


def _of_vectors(plan: Plan) -> dict[str, float]:
    """Rates by the number and by the byte."""
    size = min(max(plan.numbers or 0, _FEWEST), _MOST)
    vector, source, mask_stream = np.zeros(size), SecureSource(), MaskStream()
    residues, total = ring.zeros(size, plan.word_bits), ring.zeros(size, plan.word_bits)
    keys = [(bytes([number]) * KEY_BYTES, False) for number in range(_MASKS)]
    content = bytes(residues.nbytes)

    def noised() -> None:
        np.divide(vector, 1.5, out=vector)
        add_noise_and_round(vector, plan.share_sigma_grid, source, plan.word_bits)

    def added() -> None:
        np.add(total, residues, out=total)

    return {
        "mask": _processor(lambda: mask_stream.add_all(residues, keys))
        / (_MASKS * residues.nbytes),
        "noise": _processor(_apart(noised)) / size,
        "hash": _processor(lambda: hashlib.sha256(content)) / len(content),
        "copy": _processor(lambda: b"".join((content, b"."))) / len(content),
        "add": _processor(added) / size,
    }


def _of_messages() -> dict[str, float]:
    """Signatures, and what a request and its answer take by themselves."""
    keys = Keys.generate("a", "silo")
    numbers = count()

    def content() -> bytes:
        return _SMALL + next(numbers).to_bytes(8, "little")

    signed = [(keys.sign(one), one) for one in (content() for _ in range(_TRIES + 1))]

    def verified() -> None:
        keys.identity.verifies(*signed.pop())

    return {
        "sign": _processor(lambda: keys.sign(content())),
        "verify": _processor(verified),
        "message": _processor(_asked) / _PARTIES,
    }


def _asked() -> None:
    """Parties of this process are asked for nothing much, and answer it."""
    blob = request(Call.PING, NO_SESSION, [_SMALL])

    def endpoint(data: bytes) -> bytes:
        return answer(read_request(data)[2])

    phase = in_process(lambda _: endpoint)
    for _party, found in phase("ping", {str(one): blob for one in range(_PARTIES)}, 60.0):
        read_answer(found if isinstance(found, bytes) else b"")


def _charged(plan: Plan) -> _Spent:
    """A row in a ledger of its own."""
    kind, rounds = kind_of(plan), count(1)
    session = Session(
        study=plan.study.id,
        id=bytes(SESSION_BYTES),
        index=1,
        transcript=_DIGEST,
        seed=_DIGEST,
        secrets={},
    )
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "ledger.sqlite") as ledger:

        def charge() -> None:
            entry = entry_of(plan, session, Charge(round=next(rounds), attempt=0), kind)
            ledger.charge(entry, attempts=10**6)

        return _spent(charge)


def _synced() -> float:
    """Seconds until a small file is on disk."""
    with tempfile.TemporaryDirectory() as folder:
        return _spent(lambda: write_bytes(Path(folder) / "file", _SMALL)).waited


@dataclass(frozen=True, kw_only=True)
class _Learnt:
    """What takes torch."""

    base: int
    record: int
    gradient: float | None
    update: _Spent


def _learnt(plan: Plan, shared: bool) -> _Learnt | None:
    """A clipped sum on made-up records, and a step of the model; None without a model."""
    import hubbub.learning as learning
    from hubbub.learning.study_model import model_of

    _tried_out()
    base, shape = _peak(), record_shape(plan.study)
    if shape is None or plan.dimension is None:
        return None
    model, terms = model_of(plan.study, shape), round_parameters_of(plan, plan.dimension)
    parameters = learning.parameters_vector(model)
    with learning.threads_for(0 if shared else parameters.size):  # 0: so few that one is best
        work = _gradient(plan, model, terms, parameters, shape)
        spent = _spent(_apart(work)) if work else None
    gradient = (spent.mean if shared else spent.least) if spent else None
    record = _made_up(1, shape, plan.study.model.outputs)
    return _Learnt(
        base=base,
        record=record.inputs.nbytes + record.targets.nbytes,
        gradient=gradient,
        update=_updated(plan, model, terms),
    )


def _tried_out() -> None:
    """A sum with a tiny model, which loads whatever torch loads at first use."""
    import hubbub.learning as learning

    model = learning.build_model("logistic", inputs=(2,), outputs=1, seed=b"")
    learning.method_for(model, (2,), np.zeros(1, dtype=np.int64))


def _gradient(
    plan: Plan, model: Any, terms: RoundParameters, parameters: Parameters, shape: tuple[int, ...]
) -> Work | None:
    """One silo's sum over as many records as are in its batch on average, none if not known.

    Another batch in every try: how often the model is gone through depends on which records meet,
    so it is the mean that many silos take.
    """
    import hubbub.learning as learning

    study = plan.study
    batch = ceil(study.training.sample_rate * study.data.records / study.parties.silos)
    if not 0 < batch <= _MOST_RECORDS:
        return None
    whole = max(1, min(_TRIES, _MOST_RECORDS // batch)) * batch
    records = _made_up(whole, shape, study.model.outputs)
    task = learning.TrainingTask(
        model,
        records,
        clip=plan.record_clip,
        margin=SUM_MARGIN,
        method=learning.method_for(model, shape, records.targets),
        most=largest_batch(study),
    )
    draw = draw_of(_DIGEST, 1, 0, parameters) if terms.projection else None
    batches = cycle(np.arange(whole).reshape(-1, batch))
    return lambda: clipped_sum(terms, task, parameters, next(batches), draw)


def _made_up(count: int, shape: tuple[int, ...], outputs: int) -> Records:
    """Records of zeros and ones, which every table of words has too."""
    drawn = np.random.default_rng(0)  # of no secret
    inputs = drawn.integers(2, size=(count, *shape)).astype(np.float32)
    return Records(inputs=inputs, targets=drawn.integers(max(2, outputs), size=count))


def _updated(plan: Plan, model: Any, terms: RoundParameters) -> _Spent:
    """From the sum in grid steps to the next model, on disk."""
    import hubbub.learning as learning
    from hubbub.learning.study_model import lift_of, optimizer_of
    from hubbub.training.checkpoint import Checkpoint, write_checkpoint
    from hubbub.training.loop import State, stepped

    parameters, lift = learning.parameters_vector(model), lift_of(terms, model)
    optimizer, steps = optimizer_of(plan.study), count(1)
    draw = draw_of(_DIGEST, 1, 0, parameters)
    total = ring.zeros(terms.dimension, terms.word_bits)
    with tempfile.TemporaryDirectory() as folder:

        def update() -> None:
            found = decoded(terms, ring.to_integers(total))
            found = lift(found, draw) if lift else found
            made = stepped(optimizer, parameters, found, plan.divisor)
            state = State(step=next(steps), parameters=made, optimizer=optimizer.state())
            write_checkpoint(Path(folder), Checkpoint(state=state))

        return _spent(update)


def _apart(work: Work) -> Work:
    """The same on a thread of its own, as a party answers.

    A fresh thread does not find the memory that the last one has left, which large work feels.
    """

    def on_a_thread() -> None:
        with ThreadPoolExecutor(1) as thread:
            thread.submit(work).result()

    return on_a_thread


def _processor(work: Work) -> float:
    """The median of processor seconds."""
    return _spent(work).processor


def _spent(work: Work) -> _Spent:
    """Medians, after one try that does not count."""
    work()
    processor, clock = [], []
    for _ in range(_TRIES):
        before = time.process_time()
        clock.append(seconds(work))
        processor.append(time.process_time() - before)
    waited = min(whole - busy for whole, busy in zip(clock, processor, strict=True))
    return _Spent(
        processor=median(processor),
        mean=mean(processor),
        waited=max(0.0, waited),
        least=min(clock),
    )


def _peak() -> int:
    """The most memory that this process has had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _has_torch() -> bool:
    return find_spec("torch") is not None and find_spec("safetensors") is not None

"""The errors: one root, messages that stand alone, and the way through pickle."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from echomq import errors
from echomq.errors import EchoMQError

FILLED = {"str": "text", "int": 7, "bool": True}


def example(cls: type[EchoMQError]) -> EchoMQError:
    """Make an error of the class with a value for each of its parameters."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return cls("text")
    return cls(**{each.name: FILLED[each.annotation] for each in parameters})


PUBLIC = [each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, EchoMQError)]
EXAMPLES = [example(cls) for cls in PUBLIC]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_survives_pickle_and_copy(error: EchoMQError) -> None:
    """An error comes back from a worker process with its text, its attributes and its notes."""
    error.add_note("seen in a test")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_error_message_names_what_it_carries(error: EchoMQError) -> None:
    """The message stands by itself: id, queue and offending value are in it."""
    assert str(error)
    shown = {"id", "queue", "path", "theirs", "reason", "code", "message"} & vars(error).keys()
    assert all(str(vars(error)[name]) in str(error) for name in shown)


def test_bad_values_stay_value_errors() -> None:
    """Callers who know nothing of this library catch what they would expect."""
    for cls in (errors.InvalidJobError, errors.EncodeError, errors.DecodeError):
        assert issubclass(cls, ValueError)


def test_decode_error_reads_as_a_sentence() -> None:
    """The path comes first, then what was expected and what came."""
    assert str(errors.DecodeError("expected int, got 'x'", "args[0].size")) == "args[0].size: expected int, got 'x'"


def test_job_failed_error_reads_as_a_sentence() -> None:
    """It says how often the job was tried and what ended it."""
    assert str(errors.JobFailedError("JOB0", "KeyError", "'x'", "", 1)) == "JOB0 failed after 1 attempt: KeyError: 'x'"
    assert str(errors.JobFailedError("JOB0")) == "JOB0 failed after 0 attempts: no reason recorded"

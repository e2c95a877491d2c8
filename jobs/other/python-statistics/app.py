"""A job in Python: a list of numbers comes in, what the standard library's statistics say of them goes out."""

import json
import statistics

from componentize_py_types import Err
from wit_world.imports import host, types

QUANTILES = 4


class Handler:
    def run(self, job: types.Job, payload: bytes) -> bytes:
        try:
            numbers = json.loads(payload)
        except ValueError as error:
            raise dead(f"the payload is no JSON: {error}")
        if not (isinstance(numbers, list) and numbers and all(is_number(n) for n in numbers)):
            raise dead("the payload must be a list of numbers, one at least")
        host.log(types.Level.INFO, f"attempt {job.attempt} of job {job.id}: {len(numbers)} numbers")
        result = {
            "count": len(numbers),
            "mean": statistics.fmean(numbers),
            "median": statistics.median(numbers),
            "deviation": statistics.pstdev(numbers),
        }
        if len(numbers) > 1:
            result["quartiles"] = statistics.quantiles(numbers, n=QUANTILES)
        return json.dumps(result).encode()


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def dead(message: str) -> Err:
    """No further attempt can succeed. An exception of any other kind is a trap: the job is tried again."""
    return Err(types.Failure_Dead(message))

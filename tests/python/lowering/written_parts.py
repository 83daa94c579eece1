# SPDX-License-Identifier: Apache-2.0
"""What tests of writes in place share: calls against eager, and the size of what is copied."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from torch.testing import assert_close

__all__ = ["check_calls", "largest_buffer"]


def check_calls(fast: Any, function: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """Compare results, arguments, and errors; and whether the first argument counts a write."""
    with torch.no_grad():
        for args in calls:
            ours, eager = copy.deepcopy(args), copy.deepcopy(args)
            versions = ours[0]._version, eager[0]._version
            try:
                expected = function(*eager)
            except (IndexError, RuntimeError) as error:
                with pytest.raises(type(error), match=re.escape(str(error))):
                    fast(*ours)
            else:
                assert_close(fast(*ours), expected)
                written = ours[0]._version > versions[0], eager[0]._version > versions[1]
                assert written[0] == written[1]
            assert_close(ours, eager)


def largest_buffer(fast: Any) -> int:
    """The number of elements of the largest buffer that a program has besides its inputs."""
    main = fast.host_ir().split("kernel @")[0]
    found = re.findall(r"= (?:allocate|aten_call)\(.*: tensor<\w+, \[([\d, ]*)\]", main)
    return max((prod(map(int, filter(None, sizes.split(", ")))) for sizes in found), default=0)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnviz.arrays import Floats
from attnviz.render.digits import Digits
from attnviz.render.ranges import Range


@pytest.mark.parametrize(
    ("value", "top", "precision", "text"),
    [
        (-0.421, 1.0, 2, "−.42"),
        (0.5, 1.0, 3, ".500"),
        (1.0, 1.0, 2, "1.00"),
        (-0.004, 1.0, 2, "−.00"),
        (1.95, 1.95, 2, "1.95"),
        (-12.34, 20.0, 2, "−12.3"),
        (0.04, 20.0, 2, ".0"),
        (-340.6, 400.0, 2, "−341"),
        (0.4, 400.0, 2, "0"),
        (-0.4, 400.0, 2, "−0"),
        (0.0123, 0.02, 2, ".012"),
        (123456.0, 2e5, 2, "123456"),
        (-1234567.0, 2e6, 2, "−1.2e6"),
        (0.0000123, 2e-5, 2, "1.2e−5"),
        (0.0, 1.0, 2, "0"),
        (-0.0, 1.0, 2, "0"),
        (np.inf, 1.0, 2, "?"),
    ],
)
def test_numbers_are_written_as_their_range_asks_for(value: float, top: float, precision: int, text: str) -> None:
    assert Digits.of(Range(-top, top, "score"), precision).text(value) == text


@given(st.floats(-1, 1), st.integers(1, 5), st.sampled_from([1e-8, 1e-3, 0.07, 1.0, 1.95, 20.0, 700.0, 1e9]))
def test_a_number_is_read_back_within_half_its_last_digit_and_keeps_its_sign(
    share: float, precision: int, top: float
) -> None:
    value = share * top
    digits = Digits.of(Range(-top, top, "score"), precision, minus="-")
    text = digits.text(value)
    size = abs(value) if digits.exponent else 1.0
    assert abs(float(text) - value) <= 0.5001 * size * 10.0**-digits.after
    assert text.startswith("-") == (value < 0)
    assert digits.exponent or digits.after == 0 or top * 10**digits.after >= 10 ** (precision - 1)


@given(
    arrays(np.float64, st.integers(0, 6), elements=st.floats(-50, 50) | st.just(np.nan) | st.just(0.0)),
    st.sampled_from([Range(-50.0, 50.0), Range(-1e-7, 1e-7), Range(0.0, 50.0, "entropy")]),
)
def test_the_width_is_that_of_the_longest_number(values: Floats, span: Range) -> None:
    digits = Digits.of(span, 2)
    longest = max((len(digits.text(value)) for value in values.tolist()), default=1)
    assert digits.width(values) == longest if not digits.exponent else digits.width(values) >= longest

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from specdeploy.cli.signals import SIGNALS, SignalSwitch


@pytest.fixture
def switch() -> Iterator[SignalSwitch]:
    switch = SignalSwitch()
    with switch.listening():
        yield switch


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_presses_the_switch_and_raises_nothing(
    switch: SignalSwitch, number: signal.Signals
) -> None:
    signal.raise_signal(number)
    assert (switch.pressed, switch.pressed_again) == (True, False)


def test_a_second_signal_is_told_apart(switch: SignalSwitch) -> None:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    assert switch.pressed_again


def test_a_signal_ends_what_may_be_broken_off(switch: SignalSwitch) -> None:
    with pytest.raises(KeyboardInterrupt), switch.breaking():
        signal.raise_signal(signal.SIGTERM)


def test_an_earlier_signal_lets_nothing_begin_that_may_be_broken_off(switch: SignalSwitch) -> None:
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), switch.breaking():
        pytest.fail("began")


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with SignalSwitch().listening():
        pass
    assert [signal.getsignal(number) for number in SIGNALS] == before

"""A thread that trains while another one acts."""

import atexit
from collections.abc import Callable
from threading import Condition, Thread

from pytorchrl.learner import Learner
from pytorchrl.scheme.background_collector import BackgroundCollector


class BackgroundTraining:
    """Stores and learns from the steps that are handed over, in a thread of its own.

    An exception in the thread ends it, and is raised by the next call of a method here. A program that ends without
    :meth:`close` waits for the step that the thread is in.

    Args:
        learner: is stepped while there are steps to store.
        collector: of the learner's scheme.
        max_steps_ahead: steps of all environments that may wait for updates; then handing over waits.
    """

    def __init__(self, learner: Learner, collector: BackgroundCollector, max_steps_ahead: int) -> None:
        self._learner, self._collector, self._max_steps_ahead = learner, collector, max_steps_ahead
        self._changed = Condition()
        self._is_closing = self._is_busy = False
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="pytorchrl training", daemon=True)
        # A thread in torch at the end of the interpreter would abort the program.
        atexit.register(self._end)
        self._thread.start()

    def take_weights(self) -> None:
        """Act with the weights of after the last update phase."""
        if self._error is not None:
            raise self._error
        self._collector.take_weights()

    def give_weights(self) -> None:
        """Let actions be chosen with weights that something else than updates has changed; no step may wait."""
        self._collector.publish(is_changed=True)

    def make_step(self) -> None:
        """Step the environments and hand the step over; waits where too many wait already."""
        self._wait(lambda: self._collector.steps_ahead < self._max_steps_ahead)
        self._collector.make_step()
        with self._changed:
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until all steps are stored, and the updates that they made due are done."""
        self._wait(lambda: not self._is_busy and not self._collector.steps_ahead)

    def close(self) -> None:
        """Settle and end the thread; a second call does nothing."""
        if self._is_closing:
            return
        try:
            self.settle()
        finally:
            self._end()

    def _end(self) -> None:
        atexit.unregister(self._end)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _wait(self, condition: Callable[[], bool]) -> None:
        if self._is_closing:
            raise RuntimeError("Agent: it is closed; make another one with resume=True to go on from its checkpoint")
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or condition())
            if self._error is not None:
                raise self._error

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closing or self._collector.steps_ahead > 0)
                if self._is_closing:
                    return
                self._is_busy = True
            try:
                self._learner.step()
                self._collector.publish()
            except BaseException as error:  # raised again in the thread that acts
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return

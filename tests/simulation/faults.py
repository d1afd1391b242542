"""What goes wrong in a run, and how it is put right."""

from __future__ import annotations

from typing import Protocol

from tests.simulation.history import History
from tests.simulation.link import Link, Weather
from tests.simulation.loop import Process, VirtualLoop
from tests.simulation.scenario import Fault
from tests.simulation.server import Server

STORM = Weather(latency=0.05, lost_request=0.04, lost_reply=0.06, cut=0.04, late=0.04, lost_notice=0.3, slow=0.02)


class Victims(Protocol):
    """Whom faults can strike."""

    loop: VirtualLoop
    history: History
    server: Server
    links: list[Link]
    usual_weather: Weather

    def worker_process(self, number: int) -> tuple[Process, Link] | None:
        """The process of a worker, if it lives."""
        ...

    def remote_process(self, number: int) -> Process | None:
        """The process of a worker that uses HTTP, if it lives."""
        ...

    def restart_service(self) -> None:
        """The HTTP service dies, and is started again."""

    def start_worker(self, number: int) -> None:
        """Start a worker in place of the last one of that number."""

    def stop_worker(self, number: int) -> None:
        """Ask a worker to stop in order."""


class Faults:
    """Lets faults happen, and ends all of them."""

    def __init__(self, world: Victims) -> None:
        self._world = world
        self._loop = world.loop

    def strike(self, fault: Fault) -> None:
        """Let it happen now."""
        getattr(self, f"_{fault.what.replace(' ', '_')}")(fault)

    def _note(self, who: object, what: str) -> None:
        self._world.history.add(who, f"*** {what}")

    def _later(self, seconds: float, call: object, *args: object) -> None:
        self._loop.call_later(seconds, call, *args)  # type: ignore[arg-type]

    def _kill(self, fault: Fault) -> None:
        victim = self._world.worker_process(fault.which)
        if victim is not None:
            self._note(victim[0], "killed")
            victim[0].kill()
        self._later(fault.seconds, self._start, fault.which)

    def _start(self, number: int) -> None:
        if self._world.worker_process(number) is None:
            self._world.start_worker(number)

    def _stop(self, fault: Fault) -> None:
        """A deployment: it stops in order, and another one starts."""
        self._world.stop_worker(fault.which)
        self._later(fault.seconds, self._world.start_worker, fault.which)

    def _freeze(self, fault: Fault) -> None:
        victim = self._world.worker_process(fault.which)
        if victim is None or victim[0].is_frozen:
            return
        process = victim[0]
        self._note(process, f"frozen for {fault.seconds:.1f} s")
        process.freeze()
        self._later(fault.seconds, self._resume, process)

    def _resume(self, process: Process) -> None:
        if process.is_alive and process.is_frozen:
            self._note(process, "resumed")
            process.resume()

    def _kill_remote(self, fault: Fault) -> None:
        process = self._world.remote_process(fault.which)
        if process is not None:
            self._note(process, "killed")
            process.kill()

    def _freeze_remote(self, fault: Fault) -> None:
        process = self._world.remote_process(fault.which)
        if process is not None and not process.is_frozen:
            self._note(process, f"frozen for {fault.seconds:.1f} s")
            process.freeze()
            self._later(fault.seconds, self._resume, process)

    def _kill_service(self, fault: Fault) -> None:
        self._world.restart_service()

    def _partition(self, fault: Fault) -> None:
        victim = self._world.worker_process(fault.which)
        if victim is None:
            return
        process, link = victim
        self._note(process, f"cut off for {fault.seconds:.1f} s")
        link.is_cut = True
        self._later(fault.seconds, self._reconnect, link)

    def _reconnect(self, link: Link) -> None:
        self._note(link.process, "connected again")
        link.is_cut = False

    def _outage(self, fault: Fault) -> None:
        self._note("database", f"away for {fault.seconds:.1f} s")
        self._world.server.go_away()
        self._later(fault.seconds, self._come_back)

    def _come_back(self) -> None:
        if self._world.server.is_away:
            self._note("database", "back")
            self._world.server.come_back()

    def _storm(self, fault: Fault) -> None:
        self._note("network", f"bad for {fault.seconds:.1f} s")
        for link in self._world.links:
            link.weather = STORM
        self._later(fault.seconds, self._calm)

    def _calm(self) -> None:
        for link in self._world.links:
            link.weather = self._world.usual_weather

    def _drift(self, fault: Fault) -> None:
        victim = self._world.worker_process(fault.which)
        if victim is not None:
            self._note(victim[0], f"its clock runs {fault.amount:.3f} times as fast")
            victim[0].drift(fault.amount)

    def _wall_clock_step(self, fault: Fault) -> None:
        victim = self._world.worker_process(fault.which)
        if victim is not None:
            self._note(victim[0], f"its wall clock steps by {fault.amount:.1f} s")
            victim[0].wall_offset += fault.amount

    def _clock_step(self, fault: Fault) -> None:
        self._note("database", f"its clock steps by {fault.amount:.1f} s")
        self._world.server.step_clock(fault.amount)

"""What pydantic-ai calls: its durability capability, which runs the operations of an agent as steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, TypedDict

from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalCallableOperationBackend,
    RoleBasedOperationConfig,
)
from pydantic_ai.models import Model
from pydantic_ai.tools import AgentDepsT, RunContext

from tasklib.core.calls.context import AsyncTaskContext, StepContext
from tasklib.core.calls.current import current_context
from tasklib.errors import ConfigurationError

METADATA: Final = "tasklib"
"""The key of a tool's metadata that holds its `StepConfig`, or False for a tool that is no step."""
MAX_NAME: Final = 150
"""Of a step's name; its key takes the rest."""


class StepConfig(TypedDict, total=False):
    """How a step of an agent runs; what is left out is as in `ctx.options`."""

    retries: int
    delay_seconds: float
    timeout_seconds: float | None


class TasklibDurability(BaseDurabilityCapability[AgentDepsT]):
    """Lets an agent record its work in the task that runs it; give it to `Agent(capabilities=[...])`.

    `model` and `tool` say how steps of models and of tools run.  One tool's own is in its metadata:
    `@agent.tool(metadata={"tasklib": StepConfig(retries=3)})`, or False to run it as plain code, again each time.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="tasklib",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        model: StepConfig | None = None,
        tool: StepConfig | None = None,
    ) -> None:
        """`models` are further ones by name, for runs that choose; `name` is that of the agent in its steps."""
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._model = _checked(model)
        self._tool = _checked(tool)

    @property
    def in_durable_context(self) -> bool:
        """Whether a task runs here, and none of its steps."""
        return _running() is not None

    def get_default_run_id(self) -> str | None:
        """The task's id and which run of an agent in it this is: the same when the task runs again."""
        ctx = _running()
        return None if ctx is None else f"{ctx.task.id}:{_Counts.of(ctx).next('run')}"

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """When the run first began; recorded."""
        ctx = _running()
        if ctx is None:
            return None
        key = f"{run_id}.{_Counts.of(ctx).next(f'start {run_id}')}"
        return await ctx.options(name=f"{self.name}__run_start_time"[:MAX_NAME], key=key).step(_now)

    def get_durable_operation_backend(self) -> DurableOperationBackend[StepConfig]:
        """The steps of the task that runs."""

        def tool_config(_: DurableOperationId, tool: Any, tool_name: str) -> StepConfig | Literal[False]:
            metadata = getattr(getattr(tool, "tool_def", None), "metadata", None) or {}
            own = metadata.get(METADATA)
            return False if own is False else {**self._tool, **_checked(own)}

        none = StepConfig()
        config = RoleBasedOperationConfig[StepConfig](
            model=self._model, event=none, capability=none, tool=self._tool, resolve_tool=tool_config
        )
        return _Steps(agent_name=self.name, default_model_id=self.default_model_id, config=config)


class _Steps(JournalCallableOperationBackend[StepConfig]):
    """Runs each operation of an agent as a step."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepConfig,
    ) -> object:
        """What the operation gives: recorded, or run now and recorded."""
        ctx = _running()
        if ctx is None:
            return await body()

        async def operation() -> Any:
            return await body()

        which = _which(cache_key)
        key = f"{which}{_Counts.of(ctx).next(f'{name} {which}')}"
        return await ctx.options(name=name[:MAX_NAME], key=key, **config).step(operation)


def _which(cache_key: tuple[object, ...]) -> str:
    """What distinguishes operations of one name that run concurrently: the id of the tool's call."""
    for part in cache_key:
        if isinstance(part, RunContext) and part.tool_call_id:
            return f"{part.tool_call_id[:40]}."
    return ""


@dataclass(slots=True)
class _Counts:
    """How often each operation was called in one attempt: operations of one name differ by their order."""

    seen: dict[str, int]

    @classmethod
    def of(cls, ctx: AsyncTaskContext) -> _Counts:
        found: _Counts = ctx.scratch.setdefault(cls, cls({}))
        return found

    def next(self, what: str) -> int:
        self.seen[what] = self.seen.get(what, 0) + 1
        return self.seen[what]


def _running() -> AsyncTaskContext | None:
    """The context of the task that runs here; None in a step, and outside of tasks."""
    found: Any = current_context(None)
    return found if isinstance(found, AsyncTaskContext) and not isinstance(found, StepContext) else None


async def _now() -> datetime:
    return datetime.now(UTC)


def _checked(config: Any) -> StepConfig:
    known = StepConfig.__annotations__
    if config is None:
        return StepConfig()
    if not isinstance(config, Mapping) or any(name not in known for name in config):
        raise ConfigurationError(f"a step of an agent is configured by {', '.join(known)}, got {config!r}")
    checked: StepConfig = {**config}  # type: ignore[typeddict-item]
    return checked

"""The GPU and the plans of this process, as they are written."""

from __future__ import annotations

from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.cudnn.emit.plan_source import Written
from golow.levels.direct.cudnn.emit.project import Machine
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.run.called_plan import CalledPlan
from golow.levels.direct.emit.network import Network, Sized


def machine_of(engines: Engines) -> Machine:
    """The GPU of these engines, and the libraries that they call."""
    properties = engines.gpu.properties()
    major, minor, patch = map(int, engines.lt.version.split("."))
    return Machine(
        engines.gpu.name,
        (properties["computeMajor"], properties["computeMinor"]),
        properties["numSms"],
        int(engines.frontend.version),
        10000 * major + 100 * minor + patch,
        engines.gpu.compiled,
    )


def written_network(network: Network[CalledPlan]) -> Network[Written]:
    """A network whose plans are in memory, with what of them is written."""

    def written(plan: CalledPlan, read: Read) -> Written:
        return Written(plan.built, plan.sources, read, plan.output_types)

    plans = {size: Sized(written(*one), one.read) for size, one in network.plans.items()}
    return network._replace(plans=plans)  # type: ignore[return-value, arg-type]

"""Measuring before promising: a survey of a script on the hosts that are there, and what follows.

one worker     the plain script, some steps               ┐
all workers    links, talking, computing, strategies' own ┴─► Survey ─► predictions ─► choice
the best two   five real steps each, if there is time ────────► Survey ─► predictions ─► choice
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Sequence

from reparto._execution import Watcher, execute
from reparto._trial_clock import Clock
from reparto.engines import Engine
from reparto.errors import EngineError
from reparto.measure import UsageSampler
from reparto.plan import check_prices, choose, place, plan_run
from reparto.plan._candidates import Candidate, candidates
from reparto.spec import (
    Cluster,
    Event,
    Exchange,
    Forecast,
    Job,
    Link,
    Options,
    Phase,
    Plan,
    Prediction,
    Program,
    RunResult,
    StrategyConfig,
    Survey,
    Surveyed,
    SurveyRequest,
    Trial,
    Wish,
    WorkerSurvey,
    from_plain,
)

#: Planning is to take no longer; what there is no time for is left out, and told.
LIMIT_S = 55.0
#: Workers that have told the most of it and do not come to an end are ended.
LONGEST_S = 75.0
#: Steps of a trial, after the first; as many rounds as that takes.
TRIAL_STEPS, MOST_TRIAL_STEPS = 5, 2000
#: Where they are short, it goes on for so long.
TRIAL_S = 1.5
#: Steps before anything is timed.
WARM_UP = 2
#: Before anything is measured, this machine is listened to: so long, and whether others use more
#: than that part of it.
LISTEN_S, BUSY_SHARE = 0.3, 0.25
#: Of a script that makes fewer steps hardly any can be timed.
FEW_STEPS = 15
#: A phase of computing may take so long, and so much is left for trials.
PHASE_S, TRIALS_S = 2.4, 9.0

Tell = Callable[[str], None]


class Site:
    """What is planned, and where.

    Args:
        job: What the user asked for.
        program: The script, converted.
        engine: Where workers run.
        cluster: The hosts.
        tell: Told what is being done, in a line.
    """

    def __init__(
        self, job: Job, program: Program, engine: Engine, cluster: Cluster, tell: Tell
    ) -> None:
        self.job, self.program, self.engine, self.cluster = job, program, engine, cluster
        self.tell = tell
        self.began = time.monotonic()

    @property
    def spent_s(self) -> float:
        """Seconds since planning began."""
        return time.monotonic() - self.began

    def plan(self, strategy: StrategyConfig, num_workers: int) -> Plan:
        """How a strategy would be started."""
        job = dataclasses.replace(
            self.job, strategy=strategy.kind, settings=strategy.settings, workers=num_workers
        )
        return dataclasses.replace(plan_run(job, self.cluster, self.program), reasons=())

    def execute(self, plan: Plan, options: Options, watcher: Watcher | None = None) -> RunResult:
        """Run the script by a plan; nothing that it writes is kept."""
        program = self.program
        if plan.num_workers == 1:
            files = tuple(dataclasses.replace(f, converted=f.original) for f in program.files)
            program = dataclasses.replace(program, files=files)
        options = dataclasses.replace(options, discard_writes=True, seed=self.job.options.seed)
        return execute(
            program, plan, options, engine=self.engine, cluster=self.cluster, watcher=watcher
        )


def forecast(site: Site, counts: Sequence[int], wish: Wish) -> Forecast:
    """Measure, predict every strategy, try the best two, and choose.

    Args:
        site: What is planned, and where.
        counts: Numbers of workers to weigh, beside one machine.
        wish: What the plan is to be like.

    Raises:
        UsageError: If the wish cannot be judged; see `choose`.
        EngineError: If the script fails while it is measured.
    """
    check_prices(wish, [host.name for host in site.cluster.hosts])  # before a minute has gone by
    weighed = candidates(relaxed=True)
    found = survey(site, [count for count in counts if count > 1], weighed)
    predictions = predicted(found, counts, weighed)
    first = choose(found, predictions, wish)
    trials = _tried(site, found, first)
    found = dataclasses.replace(found, trials=trials, took_s=site.spent_s)
    return choose(found, predicted(found, counts, weighed), wish)


def predicted(
    survey: Survey, counts: Sequence[int], weighed: Sequence[Candidate] = ()
) -> tuple[Prediction, ...]:
    """What every candidate would take on so many workers; the plain script first."""
    from reparto.errors import UsageError
    from reparto.plan.costs import alone, predict  # brings torch

    found = [alone(survey)]
    for count in counts:
        for candidate in weighed or candidates(relaxed=True):
            if count > 1:
                try:
                    found.append(predict(survey, candidate.strategy, count, candidate.label))
                except UsageError:
                    continue  # its settings do not suit so many workers
    return tuple(found)


def survey(site: Site, counts: Sequence[int], weighed: Sequence[Candidate]) -> Survey:
    """Measure a script on one worker and on several, and what talking costs them.

    Raises:
        EngineError: If the script fails while it is measured.
    """
    plan = site.plan(StrategyConfig(kind="single"), 1)
    notes = _disturbed(site.engine)
    for note in notes:
        site.tell(note)
    site.tell("measuring the script as it is, in one process")
    request = SurveyRequest(seconds=PHASE_S, weighs=not counts)  # else the others weigh it
    single = _asked(site, plan, request)[0]
    if single.alone is None:
        raise EngineError(
            "the script makes no steps that could be timed, or too few",
            remedy="what makes so few is not worth a plan: name a --strategy; or see "
            "`reparto convert`",
        )
    found = Survey(
        script=site.job.script,
        args=site.job.args,
        device=plan.device,
        cluster=site.cluster,
        placement=plan.placement,
        profile=single.profile,
        alone=single.alone,
        alone_host=plan.placement[0],
        startup_s=single.startup_s,
        num_steps=site.job.options.steps or single.num_steps,
        took_s=site.spent_s,
        notes=(*notes, *_brief(single.num_steps)),
    )
    if not counts:
        return found
    plan = site.plan(StrategyConfig(kind="all-reduce"), max(counts))
    phases = tuple(_phase(site, plan, count) for count in sorted({1, *counts}))
    site.tell(f"measuring {plan.num_workers} workers: computing and talking")
    request = SurveyRequest(
        phases=phases,
        candidates=tuple(one.strategy for one in weighed),
        seconds=PHASE_S,
        total_s=LIMIT_S - TRIALS_S - site.spent_s,
    )
    told = _asked(site, plan, request)
    return dataclasses.replace(
        found,
        placement=plan.placement,
        cluster=dataclasses.replace(site.cluster, links=_named(site.cluster, told[0])),
        profile=told[0].profile,
        workers=tuple(
            dataclasses.replace(one, host=plan.placement[one.rank])
            for worker in told
            for one in worker.workers
        ),
        exchanges=_once(told),
        costs=tuple(cost for worker in told for cost in worker.costs),
        rehearsals=tuple(one for worker in told for one in worker.rehearsals),
        took_s=site.spent_s,
    )


def _brief(num_steps: int | None) -> tuple[str, ...]:
    """Whether the script is over before much could be timed, in words."""
    if num_steps is None or num_steps >= FEW_STEPS:
        return ()
    return (
        f"the script makes {num_steps} steps, of which few could be timed: what is predicted here "
        "may be far off",
    )


def _disturbed(engine: Engine) -> tuple[str, ...]:
    """Whether other programs keep this machine busy, in words."""
    if engine.kind != "local":
        return ()  # workers may run anywhere
    with contextlib.closing(UsageSampler()) as sampler:
        time.sleep(LISTEN_S)
        sample = sampler.take()
    if sample.cpu_cores < BUSY_SHARE * sample.cpu_limit_cores:
        return ()
    return (
        f"other programs used {sample.cpu_cores:.1f} of this machine's "
        f"{sample.cpu_limit_cores:g} cores when measuring began: what is predicted here may be "
        "far off; plan again when it is idle",
    )


class _Listener(Watcher):
    """Keeps what workers tell, which is more and more.

    What goes on for long after all have told something is ended: something hangs.
    """

    def __init__(self, num_workers: int) -> None:
        self.surveys: dict[int, WorkerSurvey] = {}
        self._num_workers = num_workers
        self._until = math.inf
        self.is_late = False

    def has_enough(self) -> bool:
        if self._until == math.inf and len(self.surveys) == self._num_workers:
            self._until = time.monotonic() + LONGEST_S
        self.is_late = self.is_late or time.monotonic() > self._until
        return self.is_late

    def event(self, event: Event) -> None:
        if isinstance(event, Surveyed):
            self.surveys[event.rank] = from_plain(WorkerSurvey, event.found)


def _asked(site: Site, plan: Plan, request: SurveyRequest) -> list[WorkerSurvey]:
    """What each worker has measured, by rank."""
    listener = _Listener(plan.num_workers)
    result = site.execute(plan, Options(survey=request), listener)
    is_stopped = result.status == "stopped" and not listener.is_late
    if is_stopped or len(listener.surveys) < plan.num_workers:
        failure = result.failure
        why = f"{failure.error}: {failure.message}" if failure is not None else result.status
        raise EngineError(
            f"the script could not be measured: {why}",
            remedy="see whether `reparto run --steps 10` works; name a --strategy to go without",
        )
    if result.failure is not None or listener.is_late:
        told = result.failure.message if result.failure is not None else "it took too long"
        site.tell(f"strategies could not be played, so they are predicted ({told})")
    return [listener.surveys[rank] for rank in range(plan.num_workers)]


def _phase(site: Site, plan: Plan, count: int) -> Phase:
    """Which of all workers take part where there are fewer, and with how many threads."""
    free = list(enumerate(plan.placement))
    members = []
    for host in place(count, site.cluster.hosts, plan.device):
        rank = next((rank for rank, name in free if name == host), free[0][0])
        free = [(other, name) for other, name in free if other != rank]
        members.append(rank)
    smaller = site.plan(StrategyConfig(kind="all-reduce"), count)
    return Phase(members=tuple(sorted(members)), threads=smaller.threads_per_worker)


def _named(cluster: Cluster, told: WorkerSurvey) -> tuple[Link, ...]:
    """Links with the names of hosts; workers may know each other by address only."""
    names = {host.address: host.name for host in cluster.hosts}
    if len(names) < len(cluster.hosts):
        names = {}  # one machine plays them all, and tells their names
    return tuple(
        dataclasses.replace(
            link,
            source=names.get(link.source, link.source),
            target=names.get(link.target, link.target),
        )
        for link in told.links
    )


def _once(told: Sequence[WorkerSurvey]) -> tuple[Exchange, ...]:
    """Every operation is told by all who took part, alike."""
    return tuple(dict.fromkeys(one for worker in told for one in worker.exchanges))


# Trials.


def _tried(site: Site, found: Survey, first: Forecast) -> tuple[Trial, ...]:
    """Run the two best candidates for a few steps, as far as there is time."""
    allowed = [one for one in first.predictions[1:] if one.exact or first.wish.relaxed]
    best = sorted(allowed, key=lambda one: -one.samples_per_s)[:2]
    trials: list[Trial] = []
    for one in best:
        num_steps = untimed(one.strategy, one.num_workers) + _steps_of_trial(one)
        expected_s = found.startup_s + 4.0 + one.step_s * num_steps
        if site.spent_s + expected_s > LIMIT_S:
            site.tell(f"no time to try {one.label} on {one.num_workers} workers")
            continue
        site.tell(f"trying {one.label} on {one.num_workers} workers")
        if (trial := _trial(site, one)) is not None:
            trials.append(trial)
    return tuple(trials)


def _trial(site: Site, one: Prediction) -> Trial | None:
    plan = site.plan(_steady(one.strategy), one.num_workers)
    skip = untimed(one.strategy, one.num_workers)
    clock = Clock(_steps_a_round(one.strategy), skip)
    options = Options(steps=skip + _steps_of_trial(one), paces=is_apart_in_time(one.strategy))
    result = site.execute(plan, options, clock)
    if result.failure is not None or clock.step_s is None:
        site.tell(f"{one.label} on {one.num_workers} workers could not be tried")
        return None
    return Trial(
        strategy=one.strategy,
        num_workers=one.num_workers,
        step_s=clock.step_s,
        num_steps=clock.num_steps,
    )


def untimed(strategy: StrategyConfig, num_workers: int) -> int:
    """Steps before anything is timed.

    Where nobody waits, the first worker gets ahead until it may not be any further; from then on
    it goes at the pace of the slowest. One that is half as fast again makes three times as many
    steps until then as it may be ahead; one that is hardly faster tells hardly too much.
    """
    from reparto.strategies import Shared, from_spec

    config = from_spec(strategy).settled
    if not isinstance(config, Shared) or config.waits:
        return WARM_UP
    return WARM_UP + 3 * config.lead(num_workers)


def is_apart_in_time(strategy: StrategyConfig) -> bool:
    """Whether some workers may be steps ahead of others."""
    from reparto.strategies import from_spec

    return not getattr(from_spec(strategy).settled, "waits", True)


def _steps_a_round(strategy: StrategyConfig) -> int:
    from reparto.strategies import from_spec

    return max(1, int(getattr(from_spec(strategy).settled, "sync_every", 1)))


def _steps_of_trial(one: Prediction) -> int:
    """Whole rounds; some more where steps are short."""
    every = _steps_a_round(one.strategy)
    wanted = max(TRIAL_STEPS, min(MOST_TRIAL_STEPS, int(TRIAL_S / max(one.step_s, 1e-6))))
    return every * math.ceil(wanted / every)


def _steady(strategy: StrategyConfig) -> StrategyConfig:
    """As it is after its beginning; a switch as it is before it fires."""
    from reparto.strategies import Switch, from_spec

    config = from_spec(strategy)
    if not hasattr(config, "begin_after"):
        return strategy
    never = 10**9 if isinstance(config, Switch.Config) else 0
    return dataclasses.replace(strategy, settings={**strategy.settings, "begin_after": never})

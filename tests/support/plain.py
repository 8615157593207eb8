"""A runner without a model, for tests and measurements of the scheduler alone: every token is the same."""

from branchwise.engine.sched.plan import Drawn, ModelPlan, ModelResult, SpanScores

from .oracle import OracleRunner

TOKEN = 7


class PlainRunner(OracleRunner):
    """Computes nothing and checks nothing."""

    def execute(self, plan: ModelPlan) -> ModelResult:
        self.before_step(plan)
        self.steps += 1
        self.rows += sum(len(span.tokens) for span in plan.spans)
        samples = [sample for span in plan.spans for sample in span.samples]
        samples += [kept.sample for kept in plan.kept_samples]
        return ModelResult(
            drawn=tuple(Drawn(sample.seq, TOKEN, -1.0) for sample in samples),
            scores=tuple(
                SpanScores(span.seq, (0.5,) * len(span.reward_at), (-1.0,) * len(span.logprob_at))
                for span in plan.spans
                if span.reward_at or span.logprob_at
            ),
        )

"""A multi-head module as it is taught in PyTorch: project, split, attend, combine, project again."""

from dataclasses import dataclass, replace

import numpy as np

from attnviz.attention import MultiHead, Rule, merge_heads, multi_head_attention, project_heads, projected
from attnviz.backend import TORCH_NAME
from attnviz.errors import RequestError
from attnviz.lazy import function
from attnviz.lessons import axes
from attnviz.lessons.by_head import first_against_last, matrices_by_head
from attnviz.lessons.inputs import EXAMPLE, Inputs, of_text, own_or
from attnviz.lessons.lesson import Matrix, Setting, Step, bound, largest_difference
from attnviz.sources.modules import open_module
from attnviz.translation import Say

D_MODEL, N_HEADS = 8, 2
RULE = Rule(causal=True)
COMPARED = "attnviz.lessons.module_torch:torch_attention"


@dataclass(frozen=True)
class _Run:
    """A module with what goes in, and what comes out under a causal mask."""

    own: Inputs
    result: MultiHead

    @property
    def width(self) -> int:
        """The columns that all heads share out."""
        return int(self.own.projections.w_q.shape[-1])


def module(setting: Setting, say: Say) -> tuple[Step, ...]:
    """The parts of the module one after the other; where the maths runs in torch, also against `torch.nn`."""
    own = _module_of(setting)
    run = _Run(own, multi_head_attention(own.x, own.projections, own.n_heads, rule=RULE))
    steps = (_project(run, say), _split(run, say), _attend(run, say), _combine(run, say))
    comparable = setting.placing.backend == TORCH_NAME and run.width == own.d_model
    return (*steps, _against_torch(run, say)) if comparable else steps


def _module_of(setting: Setting) -> Inputs:
    """The vectors that go in, with the matrices of the module in the file, or else seeded ones."""
    if setting.module is None:
        own = own_or(EXAMPLE, setting, d_model=D_MODEL, n_heads=N_HEADS)
        return own if own.projections.w_o is not None else _with_output(own, setting)
    given = open_module(setting.module, n_heads=setting.n_heads, placing=setting.placing)
    if given.d_context != given.d_model:
        raise RequestError(
            f"{given.name} makes queries of {given.d_model} columns and keys of {given.d_context}: the lesson runs"
            " self-attention, where both are made of the same"
        )
    if setting.embeddings is None:
        text = EXAMPLE if setting.text is None else setting.text
        own = of_text(text, setting, d_model=given.d_model, n_heads=1)
    else:
        own = own_or(EXAMPLE, setting, d_model=given.d_model, n_heads=1)
    if own.d_model != given.d_model:
        raise RequestError(f"{given.name} takes {given.d_model} columns, and the embeddings have {own.d_model}")
    return replace(own, projections=given.projections, n_heads=given.n_heads)


def _with_output(own: Inputs, setting: Setting) -> Inputs:
    """The same, with a seeded output projection: a matrix and a bias."""
    rng = np.random.default_rng([setting.seed, own.d_model])
    width = own.projections.w_v.shape[-1]
    w_o = setting.placing(rng.standard_normal((width, own.d_model)) / width**0.5)
    b_o = setting.placing(rng.standard_normal(own.d_model) / 10)
    return replace(own, projections=replace(own.projections, w_o=w_o, b_o=b_o))


def _project(run: _Run, say: Say) -> Step:
    p, own = run.own.projections, run.own
    token, inner = axes.tokens(own.labels, say), axes.dimensions(own.d_model, say)
    made = {"queries": (p.w_q, p.b_q), "keys": (p.w_k, p.b_k), "values": (p.w_v, p.b_v)}
    titles = {"queries": say("queries"), "keys": say("keys"), "values": say("values")}
    n_parameters = sum(int(np.prod(w.shape)) for w in (p.w_q, p.w_k, p.w_v))
    return Step(
        say("Project"),
        say(
            "query_linear, key_linear and value_linear make queries, keys and values of the same input. A state dict"
            " holds their matrices as [out, in], so that they are transposed."
        ),
        "Q = X W_queryᵀ,  K = X W_keyᵀ,  V = X W_valueᵀ",
        (
            Matrix.of("input", say("input"), own.x, token, inner),
            *(
                Matrix.of(name, titles[name], projected(own.x, w, b), token, axes.dimensions(w.shape[-1], say))
                for name, (w, b) in made.items()
            ),
        ),
        say(
            "The three matrices have {n_parameters} numbers: d_model is {d_model}, and all heads together have {width}"
            " columns.",
            n_parameters=n_parameters,
            d_model=own.d_model,
            width=run.width,
        ),
    )


def _split(run: _Run, say: Say) -> Step:
    own = run.own
    q, _, _ = project_heads(own.x, own.x, own.projections, own.n_heads)
    token, d_head = axes.tokens(own.labels, say), q.shape[-1]
    inner = axes.dimensions(d_head, say)
    return Step(
        say("split_heads"),
        say("The columns are dealt out to the heads in runs: reshape to tokens × heads × d_head, then heads first."),
        "[n, d] → [n, h, d_head] → [h, n, d_head]",
        tuple(
            Matrix.of(f"queries_{head}", say("queries of head {head}", head=head), q[head], token, inner)
            for head in range(own.n_heads)
        ),
        say(
            "With h = {n_heads}, {n} × {width} becomes {n_heads} × {n} × {d_head}.",
            width=run.width,
            n_heads=own.n_heads,
            d_head=d_head,
            n=len(own.labels),
        ),
    )


def _attend(run: _Run, say: Say) -> Step:
    labels = run.own.labels
    query, key = axes.queries(labels, say), axes.keys(labels, say)
    return Step(
        say("compute_attention"),
        say(
            "Scores are divided by √d_head; where the mask is 0 the score becomes −∞, so that the softmax makes its"
            " weight 0. The mask here is causal."
        ),
        "A_h = softmax(mask(Q_h K_hᵀ / √d_head))",
        matrices_by_head("weights_{head}", run.result.weights, query, key, say),
        first_against_last(run.result.weights, labels, say),
    )


def _combine(run: _Run, say: Say) -> Step:
    own = run.own
    joined = merge_heads(run.result.head_outputs)
    token = axes.tokens(own.labels, say)
    with_bias = own.projections.b_o is not None
    return Step(
        say("combine_heads and output_linear"),
        say("The heads' outputs are put side by side again, and the output projection mixes them."),
        "[A₀V₀, A₁V₁, …] W_outputᵀ + b" if with_bias else "[A₀V₀, A₁V₁, …] W_outputᵀ",
        (
            Matrix.of("joined", say("heads side by side"), joined, token, axes.dimensions(joined.shape[-1], say)),
            Matrix.of(
                "output", say("output"), run.result.output, token, axes.dimensions(run.result.output.shape[-1], say)
            ),
        ),
        say(
            "What went in as {n} × {d_model} comes out as {n} × {d_out}.",
            n=len(own.labels),
            d_out=run.result.output.shape[-1],
            d_model=own.d_model,
        ),
    )


def _against_torch(run: _Run, say: Say) -> Step:
    own = run.own
    weights, output = function(COMPARED)(own.x, own.projections, own.n_heads)
    token = axes.tokens(own.labels, say)
    return Step(
        say("Against torch.nn"),
        say("The same matrices in what torch.nn.MultiheadAttention runs, with the same mask."),
        "MultiheadAttention(X, X, X)",
        (
            *matrices_by_head(
                "torch_weights_{head}", weights, axes.queries(own.labels, say), axes.keys(own.labels, say), say
            ),
            Matrix.of("torch_output", say("output"), output, token, axes.dimensions(output.shape[-1], say)),
        ),
        say(
            "The weights differ by less than {weights}, the outputs by less than {output}.",
            weights=bound(largest_difference(weights, run.result.weights)),
            output=bound(largest_difference(output, run.result.output)),
        ),
    )

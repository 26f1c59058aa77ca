"""Several heads: each attends in its own columns, and their outputs are put side by side."""

from attnviz.arrays import Array
from attnviz.attention import attend, attention_weights, joined_output, project_heads, projected, scaled_scores
from attnviz.lessons import axes
from attnviz.lessons.by_head import first_against_last, matrices_by_head
from attnviz.lessons.inputs import Inputs, example_or_own, with_shared_projections
from attnviz.lessons.lesson import Matrix, Setting, Step
from attnviz.translation import Say

MORE_HEADS = 4


def heads(setting: Setting, say: Say) -> tuple[Step, ...]:
    """Two heads, and then four, on the same projections; or as many as the student asks for."""
    own = example_or_own(setting, d_model=8, n_heads=2)
    counts = [own.n_heads]
    if setting.shared_projections:
        own = with_shared_projections(own, own.n_heads)
    elif setting.n_heads is None and setting.embeddings is None:
        counts.append(MORE_HEADS)
    steps = [_projected(own, say)]
    for n_heads in counts:
        steps += _split(own, n_heads, say)
    return tuple(steps)


def _projected(own: Inputs, say: Say) -> Step:
    token = axes.tokens(own.labels, say)
    p = own.projections
    made = {"queries": (p.w_q, p.b_q), "keys": (p.w_k, p.b_k), "values": (p.w_v, p.b_v)}
    titles = {"queries": say("queries"), "keys": say("keys"), "values": say("values")}
    matrices = [Matrix.of("embeddings", say("embeddings"), own.x, token, axes.dimensions(own.d_model, say))]
    for name, (w, b) in made.items():
        values = projected(own.x, w, b)
        matrices.append(Matrix.of(name, titles[name], values, token, axes.dimensions(values.shape[-1], say)))
    return Step(
        say("Embeddings, and what is made of them"),
        say("Each token has an embedding, and three matrices make a query, a key and a value of it."),
        "Q = E W_q,  K = E W_k,  V = E W_v",
        tuple(matrices),
        say(
            "The embeddings are {n} × {d_model}; queries, keys and values have {width} columns, for all heads"
            " together.",
            n=len(own.labels),
            d_model=own.d_model,
            width=p.w_q.shape[-1],
        ),
    )


def _split(own: Inputs, n_heads: int, say: Say) -> list[Step]:
    """The scores, the weights and the joined output of that many heads."""
    q, k, v = project_heads(own.x, own.x, own.projections, n_heads)
    weights = attention_weights(q, k)
    query, key = axes.queries(own.labels, say), axes.keys(own.labels, say)
    sizes = {"n_heads": n_heads, "width": own.projections.w_q.shape[-1], "d_head": q.shape[-1]}
    return [
        Step(
            say.many("Split: {n} head", "Split: {n} heads", n_heads),
            say("Each head takes its own columns of Q, K and V, and makes scores of them alone."),
            "S_h = Q_h K_hᵀ / √d_head",
            matrices_by_head(f"scores_{{head}}_of_{n_heads}", scaled_scores(q, k), query, key, say, "signed"),
            say("{width} columns for h = {n_heads} make d_head = {d_head}.", **sizes),
        ),
        Step(
            say.many("Attend: {n} head", "Attend: {n} heads", n_heads),
            say("Each head has a softmax of its own, and so its own weights for every token."),
            "A_h = softmax(S_h)",
            matrices_by_head(f"weights_{{head}}_of_{n_heads}", weights, query, key, say),
            first_against_last(weights, own.labels, say),
        ),
        _joined(own, attend(weights, v), n_heads, say),
    ]


def _joined(own: Inputs, head_outputs: Array, n_heads: int, say: Say) -> Step:
    output = joined_output(head_outputs, own.projections)
    token = axes.tokens(own.labels, say)
    projects = own.projections.w_o is not None
    return Step(
        say.many("Join: {n} head", "Join: {n} heads", n_heads),
        say("The output of a head is its weights times its values. The outputs stand side by side, head after head.")
        + (" " + say("Then the output projection mixes them.") if projects else ""),
        "[A₀V₀, A₁V₁, …] W_o" if projects else "[A₀V₀, A₁V₁, …]",
        (Matrix.of(f"output_of_{n_heads}", say("output"), output, token, axes.dimensions(output.shape[-1], say)),),
        say(
            "The output is {n} × {width}, as the embeddings are {n} × {d_model}.",
            n=len(own.labels),
            width=output.shape[-1],
            d_model=own.d_model,
        ),
    )

"""What looking at attention adds to running the model."""

from functools import partial
from typing import Any

from attnviz.collect import collect
from attnviz.lazy import function
from attnviz.measures.collector import MeasureCollector
from attnviz.sources.registry import open_model
from tools.benchmarks.rows import Row, Work, pair
from tools.benchmarks.start import BUNDLED
from tools.benchmarks.texts import excerpt


def rows() -> list[Row]:
    captured = [
        pair(
            f"the model's own forward pass, captured, {n_tokens} tokens",
            "not captured",
            partial(captured_pass, n_tokens),
            most=1.5,
        )
        for n_tokens in (8, 128)
    ]
    return [
        pair("measuring 72 heads × 512 tokens", "the model alone", partial(measured_text, 512), most=1.5),
        *captured,
    ]


def measured_text(n_tokens: int) -> tuple[Work, Work]:
    model = open_model("minilm", {})
    prepared = model.prepare(excerpt(BUNDLED, n_tokens))

    def forward() -> None:
        for _ in prepared.maps(range(model.n_layers)):
            pass

    def measured() -> None:
        collect(prepared.maps(range(model.n_layers)), [MeasureCollector()])

    return measured, forward


def captured_pass(n_tokens: int) -> tuple[Work, Work]:
    """The bundled model as transformers runs it, inside a `capture` block and outside."""
    capture, inference_mode = function("attnviz.sources.pytorch:capture"), function("torch:inference_mode")
    auto: Any = function("transformers:AutoModel")
    tokenizer: Any = function("transformers:AutoTokenizer")
    with function("attnviz.sources.huggingface_loading:quiet")():
        model = auto.from_pretrained(BUNDLED, dtype=function("torch:float32")).eval()
    inputs = tokenizer.from_pretrained(BUNDLED)(excerpt(BUNDLED, n_tokens), return_tensors="pt")

    def plain() -> None:
        with inference_mode():
            model(**inputs)

    def captured() -> None:
        with inference_mode(), capture(model):
            model(**inputs)

    return captured, plain

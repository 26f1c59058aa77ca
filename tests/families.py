"""Small random models of many families, and inputs for them: two texts, the second one padded."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Tensor = torch.Tensor
Inputs = Callable[[], dict[str, Tensor]]
SDPA, BLOCKED = "sdpa", "attnviz"
VOCABULARY, LONG, SHORT, PAD = 97, 11, 7, 5
"""Entries, tokens of a text and of what is written, and how many of the second text are padding."""

SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 56, "max_position_embeddings": 40,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 12, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CAPPED = GROUPED | {"sliding_window": 4, "attn_logit_softcapping": 0.7, "query_pre_attn_scalar": 1}
PAIRED: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 48, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 56, "max_position_embeddings": 40,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
SEEN: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 56}
PICTURES: dict[str, Any] = {"image_size": 12, "patch_size": 4}


def ids(n: int, seed: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (2, n), generator=torch.Generator().manual_seed(seed))


def padding(n: int, *, left: bool) -> Tensor:
    mask = torch.ones(2, n, dtype=torch.long)
    mask[1, slice(0, PAD) if left else slice(n - PAD, n)] = 0
    return mask


def read() -> dict[str, Tensor]:
    return {"input_ids": ids(LONG, 1), "attention_mask": padding(LONG, left=False)}


def continued() -> dict[str, Tensor]:
    return {"input_ids": ids(LONG, 1), "attention_mask": padding(LONG, left=True)}


def read_and_written() -> dict[str, Tensor]:
    return {**read(), "decoder_input_ids": ids(SHORT, 2)}


def heard() -> dict[str, Tensor]:
    sound = torch.randn(2, 8, 2 * LONG, generator=torch.Generator().manual_seed(3))
    return {"input_features": sound, "decoder_input_ids": ids(SHORT, 2)}


def seen() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(3))}


def read_and_seen() -> dict[str, Tensor]:
    return {**read(), **seen()}


@dataclass(frozen=True)
class Family:
    """A kind of model, small."""

    model: str
    config: str
    inputs: Inputs
    sizes: dict[str, Any]
    kernel: str | None = SDPA
    """What else it can run on than its own code: torch's fused kernel, or ours."""
    attending: tuple[int, ...] = (0, 1, 2)
    """The layers that attend."""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def implementations(self) -> tuple[str, ...]:
        return ("eager",) if self.kernel is None else ("eager", self.kernel)

    def make(self, implementation: str) -> Any:
        import transformers  # here, so that only the families that are run are imported

        import attnviz.sources.huggingface_attention  # noqa: F401 - transformers knows of it from then on

        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # some still use TorchScript
            config = getattr(transformers, self.config)(**{**self.sizes, **self.more})
            model = getattr(transformers, self.model)._from_config(config, attn_implementation=implementation).eval()
        for module in model.modules():
            if isinstance(getattr(module, "sinks", None), Tensor):
                torch.nn.init.normal_(module.sinks, std=2)  # they begin near 0, all alike
        return model


def reads(model: str, config: str, kernel: str | None = SDPA, **more: Any) -> Family:
    return Family(model, config, read, SIZES, kernel, more=more)


def continues(model: str, config: str, kernel: str | None = SDPA, **more: Any) -> Family:
    return Family(model, config, continued, GROUPED, kernel, more=more)


FAMILIES: dict[str, Family] = {
    "BERT": reads("BertModel", "BertConfig"),
    "DistilBERT": Family(
        "DistilBertModel", "DistilBertConfig", read,
        {"vocab_size": VOCABULARY, "dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 56},
    ),
    "ALBERT": reads("AlbertModel", "AlbertConfig", embedding_size=32),
    "RoBERTa": reads("RobertaModel", "RobertaConfig", pad_token_id=1),
    "ModernBERT": reads("ModernBertModel", "ModernBertConfig", local_attention=6, pad_token_id=0),
    "DeBERTa-v2": reads(
        "DebertaV2Model", "DebertaV2Config", kernel=None,
        relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
    ),
    "GPT-2": Family(
        "GPT2Model", "GPT2Config", continued,
        {"vocab_size": VOCABULARY, "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 40},
    ),
    "GPT-NeoX": Family("GPTNeoXModel", "GPTNeoXConfig", continued, SIZES),
    "OPT": Family(
        "OPTModel", "OPTConfig", continued,
        {**SIZES, "ffn_dim": 56, "word_embed_proj_dim": 48},
    ),
    "Bloom": Family(
        "BloomModel", "BloomConfig", continued,
        {"vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 3, "n_head": 4}, kernel=None,
    ),
    "Llama": continues("LlamaModel", "LlamaConfig"),
    "Mistral": continues("MistralModel", "MistralConfig", sliding_window=4),
    "Gemma 2": continues(
        "Gemma2Model", "Gemma2Config", BLOCKED,
        sliding_window=4, attn_logit_softcapping=0.7, query_pre_attn_scalar=1,
    ),
    "Gemma 3": continues("Gemma3TextModel", "Gemma3TextConfig", sliding_window=4, query_pre_attn_scalar=12),
    "Qwen3": continues("Qwen3Model", "Qwen3Config"),
    "Phi-3": continues("Phi3Model", "Phi3Config"),
    "Mixtral": continues("MixtralModel", "MixtralConfig", num_local_experts=3),
    "gpt-oss": continues(
        "GptOssModel", "GptOssConfig", BLOCKED, sliding_window=4, num_local_experts=3, num_experts_per_tok=2,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "MiMo-V2": continues(
        "MiMoV2FlashModel", "MiMoV2FlashConfig", BLOCKED, sliding_window=4, n_routed_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=24, v_head_dim=10,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],  # the first one has no sinks
    ),
    "Privacy Filter": reads(
        "OpenAIPrivacyFilterModel", "OpenAIPrivacyFilterConfig", BLOCKED, sliding_window=3, num_key_value_heads=2,
        head_dim=12, num_local_experts=3, num_experts_per_tok=2, pad_token_id=0,
    ),
    "T5Gemma": Family(
        "T5GemmaModel", "T5GemmaConfig", read_and_written,
        {"vocab_size": VOCABULARY, "encoder": CAPPED | {"num_hidden_layers": 2}, "decoder": CAPPED}, BLOCKED,
    ),
    "DeepSeek-V3": continues(
        "DeepseekV3Model", "DeepseekV3Config", num_key_value_heads=4, head_dim=8, n_routed_experts=4, kv_lora_rank=16,
        q_lora_rank=20, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, moe_intermediate_size=24,
        num_experts_per_tok=2, n_group=1, topk_group=1, first_k_dense_replace=1,
    ),
    "Jamba": Family(
        "JambaModel", "JambaConfig", continued, GROUPED, attending=(1, 3),
        more={"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2,
              "use_mamba_kernels": False, "mamba_d_state": 8},
    ),
    "T5": Family(
        "T5Model", "T5Config", read_and_written,
        {"vocab_size": VOCABULARY, "d_model": 48, "d_kv": 10, "d_ff": 56, "num_layers": 2, "num_decoder_layers": 3,
         "num_heads": 4},
    ),
    "BART": Family("BartModel", "BartConfig", read_and_written, PAIRED),
    "Marian": Family("MarianModel", "MarianConfig", read_and_written, PAIRED),
    "Whisper": Family(
        "WhisperModel", "WhisperConfig", heard, PAIRED,
        more={"num_mel_bins": 8, "max_source_positions": LONG, "max_target_positions": 20},
    ),
    "ViT": Family("ViTModel", "ViTConfig", seen, SEEN | PICTURES),
    "CLIP": Family(
        "CLIPModel", "CLIPConfig", read_and_seen,
        {"text_config": {**SIZES, "eos_token_id": 2}, "vision_config": {**SEEN, **PICTURES, "num_attention_heads": 3}},
    ),
}  # fmt: skip
"""Every size on its own: 2 texts, 11 tokens read and 7 written, 4 heads (2 for keys, 3 in encoders), 3 layers."""

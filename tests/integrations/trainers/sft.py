"""Trains LoRA adapters of a tiny GPT-2 with TRL on samples of different lengths, masks and padding included."""

from __future__ import annotations

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

args = SFTConfig(output_dir="out", learning_rate=1e-3, per_device_train_batch_size=4, max_length=32, bf16=False)


def tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: index for index, word in enumerate(["<pad>", "<eos>", *map(str, range(60))])}
    made = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>")


def samples(count: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 24, (count,), generator=generator).tolist()
    return Dataset.from_dict(
        {
            "prompt": ["1 2 3"] * count,
            "completion": [
                " ".join(map(str, torch.randint(0, 60, (length,), generator=generator).tolist())) for length in lengths
            ],
        }
    )


def make_trainer(args: SFTConfig) -> SFTTrainer:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=62, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    return SFTTrainer(
        model=model,
        args=args,
        train_dataset=samples(50, 0),
        eval_dataset=samples(12, 1),
        processing_class=tokenizer(),
        peft_config=LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM"),
    )

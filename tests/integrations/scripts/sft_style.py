"""Supervised fine-tuning with TRL, whose options are TrlParser's. The model is made here, so nothing is downloaded."""

from dataclasses import dataclass

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer, TrlParser

WORDS = "one two three four five six seven eight nine ten plus is".split()


@dataclass
class ScriptArguments:
    samples: int = 512


def sums(count, offset):
    """`two plus three is five`."""
    pairs = [((offset + 7 * k) % 5, (offset + 3 * k) % 5) for k in range(count)]
    return Dataset.from_list([{"text": f"{WORDS[a]} plus {WORDS[b]} is {WORDS[a + b + 1]}"} for a, b in pairs])


def main():
    script_args, training_args = TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()
    set_seed(training_args.seed)
    backend = Tokenizer(models.WordLevel({word: k for k, word in enumerate(["<pad>", "<eos>", *WORDS])}, "<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
        eos_token_id=1,
    )
    trainer = SFTTrainer(
        model=LlamaForCausalLM(config),
        args=training_args,
        train_dataset=sums(script_args.samples, 0),
        eval_dataset=sums(64, 3),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.evaluate()


if __name__ == "__main__":
    main()

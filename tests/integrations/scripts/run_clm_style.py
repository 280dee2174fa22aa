"""A language model in the Trainer of transformers, whose options are HfArgumentParser's."""

from dataclasses import dataclass, field

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed


@dataclass
class ModelArguments:
    n_embd: int = field(default=32, metadata={"help": "Width of the model."})


@dataclass
class DataArguments:
    block_size: int = field(default=32, metadata={"help": "Tokens of a sequence."})


class Text(torch.utils.data.Dataset):
    """Sequences in which every token follows from the one before, with noise."""

    def __init__(self, count, length, seed):
        random = torch.Generator().manual_seed(seed)
        rows = [torch.randint(0, 64, (count,), generator=random)]
        for _ in range(length - 1):
            noise = torch.randint(0, 64, (count,), generator=random)
            keep = torch.rand(count, generator=random) < 0.8
            rows.append(torch.where(keep, (rows[-1] * 5 + 3) % 64, noise))
        self.rows = torch.stack(rows, dim=1)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments, TrainingArguments))
    model_args, data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    length = data_args.block_size
    config = GPT2Config(vocab_size=64, n_positions=length, n_embd=model_args.n_embd, n_layer=1, n_head=2)
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=training_args,
        train_dataset=Text(2048, length, 1) if training_args.do_train else None,
        eval_dataset=Text(128, length, 2) if training_args.do_eval else None,
    )
    if training_args.do_train:
        trainer.train()
    if training_args.do_eval:
        print(trainer.evaluate())


if __name__ == "__main__":
    main()

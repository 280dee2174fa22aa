"""Fine-tunes a small language model with the Trainer, from top to bottom. The model is made here: no download."""

import torch
from datasets import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

args = TrainingArguments(
    output_dir="out",
    learning_rate=1e-3,
    per_device_train_batch_size=8,
    num_train_epochs=3,
    lr_scheduler_type="cosine",
    weight_decay=0.01,
    use_cpu=True,
)


def samples(count, seed):
    """Sequences that count on in steps of one to three, with a tenth of noise; padded to 32 tokens."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 61, (count, 1), generator=random)
    ids = (ids + torch.randint(1, 4, (count, 1), generator=random) * torch.arange(32)) % 61
    noise = torch.rand(count, 32, generator=random) < 0.1
    ids = torch.where(noise, torch.randint(0, 61, (count, 32), generator=random), ids)
    mask = (torch.arange(32) < torch.randint(16, 33, (count, 1), generator=random)).long()
    labels = torch.where(mask.bool(), ids, -100)
    return Dataset.from_dict({"input_ids": ids.tolist(), "attention_mask": mask.tolist(), "labels": labels.tolist()})


train, valid = samples(512, 0), samples(64, 1)
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=valid)
trainer.train()

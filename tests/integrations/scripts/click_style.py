"""A script whose options are click's. It reports with a logger."""

import logging

import click
from problem import Problem

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger(__name__)


@click.group()
def cli():
    pass


@cli.command()
@click.option("-b", "--batch-size", type=int, default=16, show_default=True, help="Samples per step.")
@click.option("--lr", type=float, default=0.01)
@click.option("--max-steps", type=int, default=200)
@click.option("--seed", type=int, default=0)
@click.option("--verbose/--quiet", default=True)
def train(batch_size, lr, max_steps, seed, verbose):
    problem = Problem(seed)
    for step in range(max_steps):
        loss = problem.step(lr, [problem.batch(batch_size)])
        if verbose and step % 10 == 0:
            log.info("step %d | train loss %.4f", step, loss)
    log.info("validation loss = %.5f", problem.evaluate())


if __name__ == "__main__":
    cli()

"""What the scripts here train: a linear model on noisy data, with momentum. Imported by all of them."""

import numpy as np

DIMENSIONS = 8


class Problem:
    def __init__(self, seed, samples=2048):
        truth = np.random.default_rng(99).normal(size=DIMENSIONS)
        data = np.random.default_rng(100)
        self.x = data.normal(size=(samples, DIMENSIONS)) * np.linspace(0.3, 2.0, DIMENSIONS)
        self.y = self.x @ truth + data.normal(scale=0.5, size=samples)
        self.valid = data.normal(size=(256, DIMENSIONS)) * np.linspace(0.3, 2.0, DIMENSIONS)
        self.valid_y = self.valid @ truth + data.normal(scale=0.5, size=256)
        self.random = np.random.default_rng(seed)
        self.weights = self.random.normal(scale=0.1, size=DIMENSIONS)
        self.velocity = np.zeros(DIMENSIONS)

    def batch(self, size):
        chosen = self.random.integers(0, len(self.y), size)
        return self.x[chosen], self.y[chosen]

    def step(self, rate, micro_batches):
        gradient, loss = np.zeros(DIMENSIONS), 0.0
        for x, y in micro_batches:
            error = x @ self.weights - y
            gradient += 2 * x.T @ error / len(y) / len(micro_batches)
            loss += float(np.mean(error**2)) / len(micro_batches)
        self.velocity = 0.9 * self.velocity + gradient
        self.weights = self.weights - rate * self.velocity
        return loss

    def evaluate(self):
        return float(np.mean((self.valid @ self.weights - self.valid_y) ** 2))

# SPDX-License-Identifier: MIT
"""A small multi-layer perceptron in numpy: all parameters lie in one flat vector, so that one all_reduce carries them.

Must not know: peers, rounds, optimisers.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Layer = tuple[NDArray[np.float32], NDArray[np.float32]]

SIZES = (64, 256, 128, 10)


def parameter_count() -> int:
    """Number of elements of a parameter vector."""
    return sum(inputs * outputs + outputs for inputs, outputs in pairwise(SIZES))


def initial_parameters(seed: int) -> Vector:
    """He initialisation; the same vector for the same seed in every process."""
    generator = np.random.default_rng(seed)
    parameters = np.zeros(parameter_count(), np.float32)
    for weights, _ in layers(parameters):
        weights[:] = generator.standard_normal(weights.shape, np.float32) * np.sqrt(2.0 / weights.shape[0])
    return parameters


def layers(vector: Vector) -> list[Layer]:
    """Views into `vector`, one (weights[inputs, outputs], biases[outputs]) per layer; writing to them writes to it."""
    views: list[Layer] = []
    start = 0
    for inputs, outputs in pairwise(SIZES):
        middle, end = start + inputs * outputs, start + inputs * outputs + outputs
        views.append((vector[start:middle].reshape(inputs, outputs), vector[middle:end]))
        start = end
    return views


def logits(parameters: Vector, images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores[image, class] of a batch images[image, pixel]."""
    return _activations(parameters, images)[-1]


def loss_and_gradient(
    parameters: Vector, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[float, Vector]:
    """Mean cross-entropy of a batch and its gradient, shaped as `parameters`."""
    activations = _activations(parameters, images)
    rows = np.arange(len(labels))
    scores = activations[-1] - activations[-1].max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    loss = float(-np.log(probabilities[rows, labels] + 1e-12).mean())

    gradient = np.empty_like(parameters)
    error = probabilities
    error[rows, labels] -= 1.0
    error /= np.float32(len(labels))
    forward, backward = layers(parameters), layers(gradient)
    for index in reversed(range(len(forward))):
        np.matmul(activations[index].T, error, out=backward[index][0])
        error.sum(axis=0, out=backward[index][1])
        if index:
            error = (error @ forward[index][0].T) * (activations[index] > 0)
    return loss, gradient


def accuracy(parameters: Vector, images: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    """Share of images whose highest score is the right class."""
    return float((logits(parameters, images).argmax(axis=1) == labels).mean())


def _activations(parameters: Vector, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """The batch itself, then each layer's output: rectified, but for the last."""
    values = [images]
    views = layers(parameters)
    for index, (weights, biases) in enumerate(views):
        output = values[-1] @ weights + biases
        values.append(np.maximum(output, 0.0) if index + 1 < len(views) else output)
    return values

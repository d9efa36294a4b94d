"""Layers for your own base networks. `arml.network` makes a network from them.

`conv2d` and `convolve` stay fast where each task has its own kernel; `lax.conv_general_dilated`
becomes a grouped convolution under `vmap`, which is several times slower on a CPU.
"""

from arml.nn.convolution import convolve, max_pool
from arml.nn.heads import units
from arml.nn.networks import BaseNetwork, Body, Conv2d, Linear, conv2d, linear, network
from arml.nn.normalisation import batch_norm, moments

__all__ = [
    "BaseNetwork",
    "Body",
    "Conv2d",
    "Linear",
    "batch_norm",
    "conv2d",
    "convolve",
    "linear",
    "max_pool",
    "moments",
    "network",
    "units",
]

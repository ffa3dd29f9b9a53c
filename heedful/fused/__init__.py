"""The operations of `heedful.attention` and of the models, fast. Each is tested against its definition.

unrolled (a recurrent encoder or decoder over all steps, as one operation) · ssru (the states of an SSRU over all
tokens) · cpu/ (the steps of recurrent models with their gradients; the Transformer's encoder and decoder with few
operations; packed weights) · triton/ (kernels, and `policy`, which decides where they are used) · cuda_graphs (captured
work, for training and decoding). A score declares its fast version by `Score.fused`.
"""

__all__: list[str] = []

"""Linear layers of a model on a CPU whose weights are laid out once for the matrix kernels of oneDNN.

``torch.nn.Linear`` hands products in float32 to MKL, which leaves the wide vectors of processors of other makers than
its own unused: on an AMD processor with AVX-512 it does 113 GFLOP/s of one core where oneDNN, the other library that
PyTorch ships, does 260. The operations are those that ``torch.compile`` puts in the place of linear layers when it
freezes a model (``torch._inductor.fx_passes.mkldnn_fusion``); here they need no compilation. They add products up in
another order: results are equal but for the rounding of float32. Where GELU follows a layer, as in the intermediate
layers of BERT and its kin, the product applies it to what it has just computed.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """A linear layer for inference in float32 on a CPU.

    Attributes:
        in_features, out_features, bias: of the layer that it stands for.
        activation: applied to its outputs: ``none``, or ``gelu``, that with the error function.
    """

    def __init__(self, linear: nn.Linear, activation: str = "none") -> None:
        super().__init__()
        self.activation = activation
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    @property
    def weight(self) -> Tensor:
        """The weights as they were, float32[out_features, in_features], for models that look at them."""
        return self._packed.to_dense()

    def forward(self, values: Tensor) -> Tensor:
        """Return the layer's outputs, float32[..., out_features], for inputs float32[..., in_features]."""
        result: Tensor = torch.ops.mkldnn._linear_pointwise(
            values, self._packed, self.bias, self.activation, [], "none"
        )
        return result


@cache
def can_pack() -> bool:
    """Say whether this build of PyTorch has the operations, and they give what ``torch.nn.Linear`` gives."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    values = torch.linspace(-1.0, 1.0, 3 * 5 * 24).reshape(3, 5, 24)
    try:
        with torch.inference_mode():
            for with_bias in (True, False):
                linear = nn.utils.skip_init(nn.Linear, 24, 16, bias=with_bias)  # type: ignore[no-untyped-call]
                for parameter in linear.parameters():
                    parameter.copy_(torch.linspace(-0.5, 1.0, parameter.numel()).reshape(parameter.shape))
                packed = PackedLinear(linear)
                same = torch.allclose(packed(values), linear(values), rtol=1e-5, atol=1e-5)
                if not same or not torch.equal(packed.weight, linear.weight):
                    return False
    except (AttributeError, RuntimeError):  # another build or version: these operations are no public interface
        return False
    return True


def _fuse_gelu(parent: nn.Module) -> None:
    """Let a linear layer apply GELU where a module has nothing but both of them, in the names of BERT."""
    dense, act = (parent._modules.get(name) for name in ("dense", "intermediate_act_fn"))
    if len(parent._modules) != 2 or type(dense) is not nn.Linear or act is None:
        return
    values = torch.linspace(-4.0, 4.0, 3 * dense.in_features).reshape(1, 3, dense.in_features)
    if not torch.equal(act(values), nn.functional.gelu(values)):
        return
    wanted = parent(values)
    parent._modules.update(dense=PackedLinear(dense, "gelu"), intermediate_act_fn=nn.Identity())
    if not torch.allclose(parent(values), wanted, rtol=1e-5, atol=1e-5):
        parent._modules.update(dense=dense, intermediate_act_fn=act)


def pack_linear_layers(model: nn.Module) -> None:
    """Replace the linear layers of a model, which is in float32 on a CPU; nothing changes where that is not possible.

    Subclasses of ``torch.nn.Linear`` stay, for they may do something else. A layer in several places stays one.
    """
    if not can_pack():
        return
    packed: dict[nn.Linear, PackedLinear] = {}
    with torch.inference_mode():
        for parent in list(model.modules()):
            _fuse_gelu(parent)
            # All of them, where ``named_children`` gives a layer with two names once.
            for name, child in list(parent._modules.items()):
                if type(child) is nn.Linear:
                    if child not in packed:
                        packed[child] = PackedLinear(child)
                    setattr(parent, name, packed[child])

# For the generator of the stub, which does not see static properties.

.*ReduceOp\.premul_sum:
    \from typing import ClassVar
    sum: ClassVar[ReduceOp]
    avg: ClassVar[ReduceOp]
    product: ClassVar[ReduceOp]
    min: ClassVar[ReduceOp]
    max: ClassVar[ReduceOp]
    bit_and: ClassVar[ReduceOp]
    bit_or: ClassVar[ReduceOp]
    bit_xor: ClassVar[ReduceOp]

    @staticmethod
    def premul_sum(factor: float) -> ReduceOp:
        \doc

# For the generator of the stub: static properties, which it does not see, and overloads by the values of arguments.

^_tendon\.__prefix__$:
    \from typing import TypeVar
    _T = TypeVar("_T")
    _T_co = TypeVar("_T_co", covariant=True)

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

^_tendon\.Pipe\.recv$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def recv(self, timeout: float | None = ..., *, mode: str = 'view_or_copy', as_: None = None, device: object = None, stream: object = None) -> TensorDict:
        \doc
    @overload
    def recv(self, timeout: float | None = ..., *, mode: str = 'view_or_copy', as_: ModuleType, device: object = None, stream: object = None) -> dict[str, Any]:
        \doc
    @overload
    def recv(self, timeout: float | None = ..., *, mode: str = 'view_or_copy', as_: type[_T], device: object = None, stream: object = None) -> _T:
        \doc

^_tendon\.Pipe\.irecv$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def irecv(self, timeout: float | None = ..., *, as_: None = None, device: object = None) -> Future[TensorDict]:
        \doc
    @overload
    def irecv(self, timeout: float | None = ..., *, as_: ModuleType, device: object = None) -> Future[dict[str, Any]]:
        \doc
    @overload
    def irecv(self, timeout: float | None = ..., *, as_: type[_T], device: object = None) -> Future[_T]:
        \doc

^_tendon\.Pipe\.arecv$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def arecv(self, timeout: float | None = ..., *, as_: None = None, device: object = None) -> Future[TensorDict]:
        \doc
    @overload
    def arecv(self, timeout: float | None = ..., *, as_: ModuleType, device: object = None) -> Future[dict[str, Any]]:
        \doc
    @overload
    def arecv(self, timeout: float | None = ..., *, as_: type[_T], device: object = None) -> Future[_T]:
        \doc

^_tendon\.Pipe\.each$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def each(self, timeout: float | None = None, *, as_: None = None, device: object = None) -> Each[TensorDict]:
        \doc
    @overload
    def each(self, timeout: float | None = None, *, as_: ModuleType, device: object = None) -> Each[dict[str, Any]]:
        \doc
    @overload
    def each(self, timeout: float | None = None, *, as_: type[_T], device: object = None) -> Each[_T]:
        \doc

^_tendon\.load$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def load(path: str | os.PathLike[str], *, as_: None = None, device: object = None) -> LoadedDict:
        \doc
    @overload
    def load(path: str | os.PathLike[str], *, as_: ModuleType, device: object = None) -> dict[str, Any]:
        \doc
    @overload
    def load(path: str | os.PathLike[str], *, as_: type[_T], device: object = None) -> _T:
        \doc

^_tendon\.load_memmap$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    @overload
    def load_memmap(path: str | os.PathLike[str], *, mode: str = 'c', as_: None = None, device: object = None) -> TensorDict:
        \doc
    @overload
    def load_memmap(path: str | os.PathLike[str], *, mode: str = 'c', as_: ModuleType, device: object = None) -> dict[str, Any]:
        \doc
    @overload
    def load_memmap(path: str | os.PathLike[str], *, mode: str = 'c', as_: type[_T], device: object = None) -> _T:
        \doc

^_tendon\.load_consolidated$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    @overload
    def load_consolidated(path: str | os.PathLike[str], *, mode: str = 'c', as_: None = None, device: object = None) -> TensorDict:
        \doc
    @overload
    def load_consolidated(path: str | os.PathLike[str], *, mode: str = 'c', as_: ModuleType, device: object = None) -> dict[str, Any]:
        \doc
    @overload
    def load_consolidated(path: str | os.PathLike[str], *, mode: str = 'c', as_: type[_T], device: object = None) -> _T:
        \doc

^_tendon\.Group\.from_remote_init$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def from_remote_init(self, src: int | None = None, *, tag: int | None = None, timeout: float | None = ..., as_: None = None, device: object = None) -> TensorDict:
        \doc
    @overload
    def from_remote_init(self, src: int | None = None, *, tag: int | None = None, timeout: float | None = ..., as_: ModuleType, device: object = None) -> dict[str, Any]:
        \doc
    @overload
    def from_remote_init(self, src: int | None = None, *, tag: int | None = None, timeout: float | None = ..., as_: type[_T], device: object = None) -> _T:
        \doc

^_tendon\.Group\.broadcast_init$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def broadcast_init(self, values: object = None, root: int = 0, *, timeout: float | None = ..., as_: None = None, device: object = None) -> Any:
        \doc
    @overload
    def broadcast_init(self, values: object = None, root: int = 0, *, timeout: float | None = ..., as_: ModuleType, device: object = None) -> dict[str, Any]:
        \doc
    @overload
    def broadcast_init(self, values: object = None, root: int = 0, *, timeout: float | None = ..., as_: type[_T], device: object = None) -> _T:
        \doc

^_tendon\.Group\.all_reduce$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def all_reduce(self, values: object, op: ReduceOp | str = 'sum', *, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def all_reduce(self, values: object, op: ReduceOp | str = 'sum', *, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def all_reduce(self, values: object, op: ReduceOp | str = 'sum', *, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.Group\.reduce$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def reduce(self, values: object, op: ReduceOp | str = 'sum', root: int = 0, *, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def reduce(self, values: object, op: ReduceOp | str = 'sum', root: int = 0, *, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def reduce(self, values: object, op: ReduceOp | str = 'sum', root: int = 0, *, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.Group\.broadcast$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def broadcast(self, values: object, root: int = 0, *, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def broadcast(self, values: object, root: int = 0, *, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def broadcast(self, values: object, root: int = 0, *, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.Group\.all_gather$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def all_gather(self, input: object, *, outputs: object = None, timeout: float | None = ..., async_op: Literal[False] = False) -> Any:
        \doc
    @overload
    def all_gather(self, input: object, *, outputs: object = None, timeout: float | None = ..., async_op: Literal[True]) -> Future[Any]:
        \doc
    @overload
    def all_gather(self, input: object, *, outputs: object = None, timeout: float | None = ..., async_op: bool) -> Any:
        \doc

^_tendon\.Group\.gather$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def gather(self, input: object, root: int = 0, *, outputs: object = None, timeout: float | None = ..., async_op: Literal[False] = False) -> Any:
        \doc
    @overload
    def gather(self, input: object, root: int = 0, *, outputs: object = None, timeout: float | None = ..., async_op: Literal[True]) -> Future[Any]:
        \doc
    @overload
    def gather(self, input: object, root: int = 0, *, outputs: object = None, timeout: float | None = ..., async_op: bool) -> Any:
        \doc

^_tendon\.Group\.scatter$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def scatter(self, inputs: object, root: int = 0, *, output: object, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def scatter(self, inputs: object, root: int = 0, *, output: object, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def scatter(self, inputs: object, root: int = 0, *, output: object, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.Group\.reduce_scatter$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def reduce_scatter(self, inputs: object, op: ReduceOp | str = 'sum', *, output: object, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def reduce_scatter(self, inputs: object, op: ReduceOp | str = 'sum', *, output: object, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def reduce_scatter(self, inputs: object, op: ReduceOp | str = 'sum', *, output: object, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.Group\.all_to_all$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def all_to_all(self, inputs: object, *, outputs: object = None, timeout: float | None = ..., async_op: Literal[False] = False) -> Any:
        \doc
    @overload
    def all_to_all(self, inputs: object, *, outputs: object = None, timeout: float | None = ..., async_op: Literal[True]) -> Future[Any]:
        \doc
    @overload
    def all_to_all(self, inputs: object, *, outputs: object = None, timeout: float | None = ..., async_op: bool) -> Any:
        \doc

^_tendon\.Group\.barrier$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def barrier(self, *, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def barrier(self, *, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def barrier(self, *, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.send_to_stage$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def send_to_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def send_to_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def send_to_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

^_tendon\.recv_from_stage$:
    \from typing import Any, Literal, overload
    \from types import ModuleType
    \from tendon._each import Each
    @overload
    def recv_from_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, timeout: float | None = ..., async_op: Literal[False] = False) -> None:
        \doc
    @overload
    def recv_from_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, timeout: float | None = ..., async_op: Literal[True]) -> Future[None]:
        \doc
    @overload
    def recv_from_stage(stages: Group, tensor_group: Group, array: object, peer: int, *, timeout: float | None = ..., async_op: bool) -> None | Future[None]:
        \doc

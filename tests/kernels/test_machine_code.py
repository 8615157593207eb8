"""Readers of cuobjdump and nvdisasm, on text as the two of CUDA 12.8 print it."""

import pytest
from branchwise.kernels.machine_code import MachineCode, count_instructions, parse_usage

USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function tree_attention:
  REG:126 STACK:16 SHARED:0 LOCAL:8 CONSTANT[0]:624 TEXTURE:0 SURFACE:0 SAMPLER:0
"""

DISASSEMBLY = """
\t.headerflags\t@"EF_CUDA_TEXMODE_UNIFIED EF_CUDA_64BIT_ADDRESS EF_CUDA_SM90 EF_CUDA_VIRTUAL_SM(EF_CUDA_SM90)"
\t.section\t.text.matmul,"ax",@progbits
        .type           matmul,@function
.text.matmul:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0080*/                   LDG.E.64 R20, desc[UR10][R20.64] ;
        /*0240*/              @!P1 IMAD.IADD R0, R0, 0x1, -R7 ;
        /*0360*/              @!P1 LDG.E.128 R16, desc[UR10][R22.64+0x1000] ;
        /*0370*/               @P2 LDG.E.LTC128B.CONSTANT R12, desc[UR10][R22.64+0x800] ;
        /*0380*/                   LDG.E.128.CONSTANT R8, desc[UR10][R22.64] ;
        /*0800*/              @!PT LDS RZ, [RZ] ;
        /*0830*/                   LDGSTS.E.BYPASS.128 [R33], desc[UR16][R28.64], !P1 ;
        /*0840*/                   LDGSTS.E.BYPASS.LTC128B.128 [R33+0x800], desc[UR16][R24.64], !P2 ;
        /*0850*/             @!UP0 LDGSTS.E.LTC128B [R33+0x900], desc[UR16][R24.64], !P2 ;
        /*0940*/                   LDGDEPBAR ;
        /*0950*/                   UTMALDG.2D [UR8], [UR4] ;
        /*0960*/                   HGMMA.64x32x16.F32.BF16 R24, gdesc[UR4], R24, !UPT ;
        /*0970*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0980*/                   LDL.LU.64 R2, [R1+0x8] ;
        /*0990*/                   STL [R1], R7 ;
        /*09a0*/               @P0 EXIT ;
.L_x_1:
"""


def code(**changes: int) -> MachineCode:
    fields = {
        "registers": 128,
        "stack_bytes": 0,
        "local_bytes": 0,
        "shared_bytes": 0,
        "warps": 4,
        "instructions": 100,
    }
    return MachineCode(**{**fields, **changes})


def test_reads_what_a_kernel_takes() -> None:
    expected = {"registers": 126, "stack_bytes": 16, "shared_bytes": 0, "local_bytes": 8}
    assert parse_usage(USAGE) == expected


def test_text_without_usage_is_refused() -> None:
    with pytest.raises(ValueError, match="no resource usage"):
        parse_usage("cuobjdump fatal   : 'x' is not in 'ELF' format")


def test_counts_each_family() -> None:
    assert count_instructions(DISASSEMBLY) == {
        "instructions": 17,
        "warp_group_products": 1,
        "warp_products": 1,
        "bulk_loads": 1,
        "async_loads": 3,
        "wide_async_loads": 2,
        "loads": 4,
        "wide_loads": 2,
        "local_loads": 1,
        "local_stores": 1,
    }


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "warps", "capability", "programs"),
    [
        # The table of kernels that the roofline was made with: registers, then shared memory bind.
        (126, 70 * 1024, 4, 90, 3),
        (96, 37 * 1024, 4, 90, 5),
        (158, 38 * 1024, 4, 90, 3),
        (255, 22 * 1024, 4, 90, 2),
        (80, 48 * 1024, 4, 80, 3),
        (16, 0, 4, 90, 16),
        (16, 0, 1, 90, 32),
    ],
)
def test_programs_per_multiprocessor(
    registers: int, shared_bytes: int, warps: int, capability: int, programs: int
) -> None:
    found = code(registers=registers, shared_bytes=shared_bytes, warps=warps).programs(capability)
    assert found == programs


@pytest.mark.parametrize("sign", ["stack_bytes", "local_bytes", "local_loads", "local_stores"])
def test_any_sign_of_a_spill_is_one(sign: str) -> None:
    assert code(**{sign: 8}).spills
    assert not code().spills

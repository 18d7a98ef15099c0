"""The page of kinds of statistics: what each is, its keys from the code, and its formulas.

`python docs/_extensions/kinds.py` writes `docs/reference/kinds.md` anew. Formulas stand here; a
kind of the code that has none is an error, and so are formulas of a kind that it has no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hubbub.estimation.kinds import KINDS

PAGE = Path(__file__).parents[1] / "reference" / "kinds.md"
# By kind: of what, what is summed, how it is read.
FORMULAS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "table": (
        (
            "table",
            "1; category less 1/m; x and x² − ½ for numbers in [−1, 1]",
            "share p̂ = count/n; variance p(1−p)/n + noise; ends by Fieller's ratio",
        ),
        ("means of groups", "table", "t, F by Welch, weights 1/(s²/n + noise)"),
    ),
    "histogram": (("histogram", "one-hot", "share p̂ = count/n; variance p(1−p)/n + noise"),),
    "crosstab": (
        ("crosstab", "one-hot", "χ²: U = O − E, Cov = P(diag E + σ²I)Pᵀ, UᵀCov⁺U"),
        (
            "risks compared",
            "crosstab",
            "Newcombe; log ratios: Σ 1/count + σ² Σ 1/count², second order taken out",
        ),
    ),
    "quantiles": (
        (
            "quantiles",
            "prefix-coded counts F·e",
            (
                "rising interpolation of the distribution function; all x with \\|F(x) − p\\| ≤ "
                "z·√(p(1−p)/n + noise at x)"
            ),
        ),
        (
            "quantiles by group",
            "prefix-coded counts by group",
            "ranks: Σₖ(n_gk − p_g n_k)a_k, variance with ties + noise",
        ),
    ),
    "survival": (
        (
            "survival",
            "prefix-coded events; losses, each between the columns of two bins; 2u(1−u)",
            "Greenwood + G K Gᵀ; score interval; band by simulating the whole covariance",
        ),
        ("log-rank", "the same for each group", "hypergeometric + gᵀ K g"),
        (
            "late entries",
            "and half of what a leaving at the entry would be",
            "numbers at risk less those not yet there",
        ),
        ("restricted mean", "survival", "gᵀ(Greenwood + G K Gᵀ)g, g the area after each edge"),
    ),
    "incidence": (
        ("Gray's test", "incidence by group", "D − R·ΣD/ΣR, R = Y(1 − F)/S; multinomial + gᵀ K g"),
        (
            "incidence",
            "prefix-coded events by kind; losses",
            "Σ S(j−1)D_cj/Y_j; multinomial + linear noise; score interval",
        ),
    ),
    "rates": (
        (
            "rates",
            "events, half the time over the horizon",
            "all r with (D − rP)² ≤ z²(rP + noise)",
        ),
        (
            "rates of a number of events",
            "number y and half the time t over their bounds; y²/2, yt/4, t²/4",
            "the same with Σ(y − rt)² in the place of rP",
        ),
    ),
    "centres": (("centres", "one-hot", "(O − np)²/(np(1−p)(1 − n/N) + noise); τ² by moments"),),
    "logistic": (
        (
            "on classes",
            "counts by pattern; of k covariates, interactions times √.3^(k−1)",
            "score on noisy cells, ties by Efron's rule; Cov = I⁻¹(I + noise)I⁻¹",
        ),
        (
            "on numbers",
            "score U, information H at 5 effects b, in 1, 1, 1, 2 and 5 sums",
            (
                "root of the mean of U + M(b − β), M the mean of H at b and at the last place, "
                "over the later sums that lie near enough; Cov = M⁻¹(M + noise)M⁻¹, and the "
                "square of what their distances may leave"
            ),
        ),
    ),
    "cox": (("on classes, on numbers", "as for logistic, in bins of time", "as for logistic"),),
    "linear": (
        (
            "linear",
            "products of columns",
            (
                "normal equations, noise propagated, whatever the noise in the residuals' "
                "variance; intervals 1.1 times as wide"
            ),
        ),
    ),
}
_HEAD = """# Kinds of statistics

For an analyst. What each kind of `[statistics.NAME]` is, [its keys](../study.md#statisticsname),
and its formulas. σ is the standard deviation of all noise on a number, at sensitivity 1.
[P23](../privacy.md#p23) has the layouts with their proofs.
"""
_TAIL = """## References

Aalen, Johansen 1978; Avella-Medina, Bradshaw, Loh 2023 (noisy optimization, Ann. Statist.);
DerSimonian, Laird 1986; Gaboardi, Lim, Rogers, Vadhan, ICML 2016, and Rogers, Kifer, AISTATS 2017
(χ² tests); Greenwood 1926; Kaplan, Meier 1958; Henzinger, Upadhyay, Upadhyay, SODA 2023, and
Fichtenberger, Henzinger, Upadhyay, ICML 2023 (prefix codes); Xiao, He, Zhang, Kifer, NeurIPS 2023
(ResidualPlanner); Grambsch, Therneau 1994; Gray 1988; Holm 1979; Newcombe 1998; Welch 1951; Yang,
Dalton 2012 (standardised differences); Fritsch, Carlson 1980 (monotone interpolation, SIAM J.
Numer. Anal.).
"""


def page() -> str:
    """The page.

    Raises:
        ValueError: the code has a kind without formulas here, or has it no more.
    """
    odd = set(KINDS) ^ set(FORMULAS)
    if odd:
        raise ValueError(f"expected formulas of each kind, not: {sorted(odd)}")
    return "\n".join([_HEAD, *(line for kind in KINDS for line in _section(kind)), _TAIL])


def _section(kind: str) -> Iterator[str]:
    of = KINDS[kind]
    yield f"## `{kind}`\n"
    yield f"{(of.__doc__ or '').splitlines()[0]}\n"
    yield f"Keys: {', '.join(f'`{name}`' for name in of.keys)}.\n"
    yield "| | what is summed | how it is read |\n|---|---|---|"
    yield from (f"| {' | '.join(row)} |" for row in FORMULAS[kind])
    yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

#' Statistics and models over many sites, with differential privacy
#'
#' Begin with `vignette("hubbub")`. [hubbub_statistics()] asks tables, curves and regressions,
#' [hubbub_init()] drafts a study that trains a model, [hubbub_plan()] says what a study means before it
#' is paid for, [hubbub_run()] runs it, [hubbub_read()] reads what another run gave,
#' [hubbub_predict()] uses a model, [hubbub_verify()] checks a run, and [hubbub_synthesize()] makes
#' synthetic records. All of them need the command `hubbub`: [hubbub_command()].
#'
#' @keywords internal
"_PACKAGE"

#' Made-up follow-ups of three clinics
#'
#' People who do not exist: the old die earlier, and the new treatment helps.
#'
#' @format A data frame with 2200 rows:
#' \describe{
#'   \item{site}{`"north"`, `"south"` or `"west"`}
#'   \item{age}{in years; missing in 3 of 100}
#'   \item{sex}{`"F"` or `"M"`}
#'   \item{treatment}{`"usual"` or `"new"`}
#'   \item{months}{of follow-up, up to 48}
#'   \item{died}{`"yes"` if the follow-up ended with death, else `"no"`}
#' }
#' @source A program, `data/clinics.R`.
"clinics"

# Answers: data frames of numbers with intervals, and how they are printed and drawn.

#' Ask statistics of all sites
#'
#' Tables, curves, tests and regressions over all sites, from noisy sums alone. Intervals include both
#' sampling and noise. The sites are played on this machine ([hubbub_run()]); a study for sites on their
#' own machines is the same file ([hubbub_study()]).
#'
#' @param sites A named list of data frames, one for each site; or a study of [hubbub_study()].
#' @param ... Questions by name ([hubbub_ask()]), and further arguments of [hubbub_study()]: `columns`,
#'   `epsilon`, `patient` and so on.
#' @param out,progress As [hubbub_run()] has them.
#' @return A `hubbub_statistics`: a list of answers by name, each a `hubbub_answer` with `title`,
#'   `confidence`, the data frames `rows`, `curves` and `tests`, `notes`, and a `refusal` where nothing
#'   is shown. They have methods for `print`, `summary`, `as.data.frame` and `plot`; regressions also
#'   for `coef` and `confint`.
#' @examples
#' \dontrun{
#' answers <- hubbub_statistics(
#'   split(clinics, clinics$site),
#'   baseline = hubbub_ask("table", ~ age + sex | treatment),
#'   survival = hubbub_ask("survival", Surv(months, died) ~ treatment, horizon = 36, test = "log-rank"),
#'   columns = list(
#'     age = c(30, 90), sex = c("F", "M"), treatment = c("usual", "new"),
#'     months = c(0, 48), died = c("no", "yes")
#'   ),
#'   epsilon = 2
#' )
#' answers$baseline
#' plot(answers$survival)
#' }
#' @export
hubbub_statistics <- function(sites, ..., out = NULL, progress = TRUE) {
  study <- if (inherits(sites, "hubbub_study")) sites else hubbub_study(sites, ...)
  run <- hubbub_run(study, out = out, progress = progress)
  structure(run$statistics, run = run)
}

# Answers by name, of plain values.
answers_of <- function(statistics) {
  structure(lapply(statistics, answer_of), class = "hubbub_statistics")
}

answer_of <- function(plain) {
  answer <- plain[c("kind", "title", "confidence", "refusal")]
  answer$notes <- as.character(plain$notes)
  answer$rows <- numbers_in(frame_of(plain$rows, c(
    "quantity", "column", "level", "group", "value", "standard_error", "error_of", "low", "high",
    "p_value", "p_adjusted"
  )), 5:6, 8:11)
  answer$tests <- numbers_in(frame_of(plain$tests, c(
    "name", "column", "statistic", "degrees", "degrees_below", "p_value", "z", "smd", "p_adjusted"
  )), 3:9)
  answer$curves <- do.call(rbind, lapply(plain$curves, points_of))
  structure(answer, class = "hubbub_answer")
}

# Columns that are numbers, though every cell may be missing.
numbers_in <- function(frame, ...) {
  for (k in c(...)) frame[[k]] <- as.numeric(frame[[k]])
  frame
}

# The points of a curve, a row each.
points_of <- function(curve) {
  values <- lapply(curve[setdiff(names(curve), c("name", "column"))], as.numeric)
  values <- values[lengths(values) > 0]
  cbind(data.frame(group = curve$name, column = curve$column), as.data.frame(values))
}

#' @export
print.hubbub_statistics <- function(x, ...) {
  for (name in names(x)) {
    cat(name, ": ", sep = "")
    print(x[[name]], ...)
    cat("\n")
  }
  if (!is.null(attr(x, "run"))) {
    cat(promise_of(attr(x, "run")))
    cat_notes(attr(x, "run"))
  }
  invisible(x)
}

#' @export
print.hubbub_answer <- function(x, digits = 3, ...) {
  cat(sprintf("%s (%g %% intervals)\n", x$title, 100 * x$confidence))
  if (nzchar(x$refusal)) cat("not answered:", x$refusal, "\n")
  if (nrow(x$rows)) print(summary(x, digits), row.names = FALSE, right = FALSE)
  if (nrow(x$tests)) print(Filter(function(column) !all(is.na(column)), x$tests), row.names = FALSE, digits = digits)
  for (sentence in x$notes) cat("note:", sentence, "\n")
  invisible(x)
}

#' Answers as tables
#'
#' `summary` has groups side by side and each number with its interval as text, as a paper prints
#' them: hand it to `knitr::kable`. `as.data.frame` has the numbers to the last digit.
#'
#' @param object,x An answer, or all answers of a study.
#' @param digits Significant digits.
#' @param row.names,optional Not used.
#' @param part `"rows"`, `"tests"` or `"curves"`.
#' @param ... Not used.
#' @return A data frame.
#' @examples
#' \dontrun{
#' summary(answers$baseline)
#' as.data.frame(answers$survival, part = "curves")
#' as.data.frame(answers)
#' }
#' @export
summary.hubbub_answer <- function(object, digits = 3, ...) {
  rows <- object$rows
  if (!nrow(rows)) return(rows)
  if (all(!nzchar(rows$group)) || anyDuplicated(rows[1:4])) {
    rows$estimate <- cell_text(rows, digits)
    shown <- rows[c("quantity", "column", "level", "group", "estimate")]
    shown$p <- p_text(rows$p_value)
  } else {
    shown <- side_by_side(rows, digits)
  }
  Filter(function(column) any(nzchar(column)), shown)
}

# A row for each quantity, and a column for each group.
side_by_side <- function(rows, digits) {
  key <- do.call(paste, c(unname(rows[1:3]), list(sep = "\r")))
  shown <- rows[!duplicated(key), 1:3]
  for (group in unique(rows$group)) {
    own <- rows$group == group
    cells <- cell_text(rows[own, ], digits)[match(unique(key), key[own])]
    shown[[if (nzchar(group)) group else "all"]] <- ifelse(is.na(cells), "", cells)
  }
  shown
}

cell_text <- function(rows, digits) {
  text <- function(values) {
    rounded <- ifelse(abs(values) >= 10^digits, round(values), signif(values, digits))
    vapply(rounded, format, "", digits = 15, scientific = FALSE)
  }
  sprintf("%s (%s to %s)", text(rows$value), text(rows$low), text(rows$high))
}

p_text <- function(values) ifelse(is.na(values), "", format.pval(values, digits = 2, eps = 1e-4))

#' @rdname summary.hubbub_answer
#' @export
summary.hubbub_statistics <- function(object, ...) {
  data.frame(
    statistic = as.character(names(object)),
    kind = vapply(object, `[[`, "", "kind"),
    title = vapply(object, `[[`, "", "title"),
    answered = !nzchar(vapply(object, `[[`, "", "refusal")),
    row.names = NULL
  )
}

#' @rdname summary.hubbub_answer
#' @export
as.data.frame.hubbub_answer <- function(x, row.names = NULL, optional = FALSE, ..., part = c("rows", "tests", "curves")) {
  frame <- x[[match.arg(part)]]
  if (is.null(frame)) data.frame() else frame
}

#' @rdname summary.hubbub_answer
#' @export
as.data.frame.hubbub_statistics <- function(x, row.names = NULL, optional = FALSE, ..., part = c("rows", "tests", "curves")) {
  part <- match.arg(part)
  frames <- Map(function(answer, name) {
    frame <- as.data.frame(answer, part = part)
    if (nrow(frame)) cbind(data.frame(statistic = name), frame)
  }, unclass(x), names(x))
  fields <- unique(unlist(lapply(frames, names)))
  filled <- lapply(Filter(Negate(is.null), frames), function(frame) {
    frame[setdiff(fields, names(frame))] <- NA
    frame[fields]
  })
  rows <- do.call(rbind, unname(filled))
  if (is.null(rows)) data.frame() else rows
}

#' Coefficients of a regression
#'
#' As R's own regressions have them: logarithms of hazard, odds and rate ratios, and slopes.
#'
#' @param object An answer of kind `"cox"`, `"logistic"` or `"linear"`.
#' @param parm Names of coefficients; all if left out.
#' @param level The confidence at which the study asked; no other is there.
#' @param ... Not used.
#' @return A named vector; of `confint`, a matrix of both ends.
#' @examples
#' \dontrun{
#' exp(cbind(coef(answers$hazards), confint(answers$hazards)))
#' }
#' @export
coef.hubbub_answer <- function(object, ...) {
  effects <- effects_of(object)
  stats::setNames(effects$value, effects$name)
}

#' @rdname coef.hubbub_answer
#' @importFrom stats coef confint
#' @export
confint.hubbub_answer <- function(object, parm = NULL, level = object$confidence, ...) {
  if (!isTRUE(all.equal(level, object$confidence))) {
    refuse(
      "expected level = ", object$confidence, ", at which the study asked, got ", level,
      "; ask with confidence = ", level,
      class = "hubbub_bad_input"
    )
  }
  effects <- effects_of(object)
  ends <- paste(format(100 * (1 + c(-1, 1) * level) / 2, trim = TRUE, digits = 3), "%")
  limits <- matrix(c(effects$low, effects$high), ncol = 2, dimnames = list(effects$name, ends))
  if (is.null(parm)) limits else limits[parm, , drop = FALSE]
}

# Effects of a regression on the scale of its coefficients.
effects_of <- function(answer) {
  if (!answer$kind %in% c("cox", "logistic", "linear")) {
    refuse("expected a regression, got an answer of kind ", answer$kind, "; see as.data.frame()", class = "hubbub_bad_input")
  }
  rows <- answer$rows
  rows <- rows[is_ratio(rows) | rows$quantity %in% c("slope", "difference"), ]
  scale <- if (answer$kind == "linear") identity else log
  data.frame(
    name = trimws(paste(rows$column, rows$level)),
    value = scale(rows$value), low = scale(rows$low), high = scale(rows$high)
  )
}

is_ratio <- function(rows) grepl("ratio$", rows$quantity)

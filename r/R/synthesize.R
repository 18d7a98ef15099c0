# Synthetic records of all sites together.

#' Make synthetic records
#'
#' Made-up records of all sites together, from noisy sums, which anybody may explore under one epsilon.
#' **Intervals that an analysis of one such table prints are too narrow.** Take shares from `summary()`,
#' which are of the sums, or combine the same analysis of twenty tables ([hubbub_tables()]).
#'
#' @param sites A named list of data frames, one for each site.
#' @param columns What is public about each column, see [hubbub_study()].
#' @param epsilon What it may cost.
#' @param targets Up to three columns of most interest, such as the outcome.
#' @param cuts By column its public break points; others have 8 ranges of equal width.
#' @param follows By column the expression of others that it follows from, such as
#'   `list(infected = "days > 0")`.
#' @param possible What holds in every record, such as `"days <= 31 * months"`.
#' @param records How many to draw; about as many as there are units if left out.
#' @param seed Another one draws others, at no cost.
#' @param ... Further arguments of [hubbub_study()].
#' @param out,progress As [hubbub_run()] has them.
#' @return A `hubbub_synthetic`: a list with `records`, a data frame, and `run`. `as.data.frame` gives
#'   the records, `summary` each column's measured shares with intervals.
#' @examples
#' \dontrun{
#' synthetic <- hubbub_synthesize(
#'   split(clinics, clinics$site),
#'   columns = list(age = c(30, 90), sex = c("F", "M"), died = c("no", "yes")),
#'   targets = "died", epsilon = 1
#' )
#' summary(synthetic)
#' fits <- sapply(hubbub_tables(synthetic), function(d) coef(glm(died == "yes" ~ age, binomial, d))["age"])
#' hubbub_combine(fits)
#' }
#' @export
hubbub_synthesize <- function(sites, columns, epsilon, targets = character(), cuts = NULL,
                              follows = NULL, possible = NULL, records = NULL, seed = 0, ...,
                              out = NULL, progress = TRUE) {
  keys <- list(targets = I(targets), follows = follows)
  keys$cuts <- if (length(cuts)) lapply(cuts, I)
  keys$possible <- if (length(possible)) I(possible)
  study <- hubbub_study(sites, columns = columns, epsilon = epsilon, synthetic = keys, ..., name = "synthetic")
  run <- hubbub_run(study, out = out, progress = progress)
  words <- c("sample", run$folder, options_of(records = records, seed = seed))
  records <- as.data.frame(ask_command(words)$columns, stringsAsFactors = FALSE, optional = TRUE)
  structure(list(records = with_types(records, study$columns), run = run, columns = study$columns), class = "hubbub_synthetic")
}

# Categories as factors with the declared levels, truth values as such.
with_types <- function(records, columns) {
  for (column in intersect(names(records), names(columns))) {
    categories <- unclass(columns[[column]]$categories)
    if (setequal(categories, c("FALSE", "TRUE"))) records[[column]] <- as.logical(records[[column]])
    else if (!is.null(categories)) records[[column]] <- factor(records[[column]], categories)
    else records[[column]] <- as.numeric(records[[column]])
  }
  records
}

#' @export
print.hubbub_synthetic <- function(x, ...) {
  cat(nrow(x$records), "synthetic records; intervals of one analysis of them are too narrow\n")
  print(utils::head(x$records))
  print(x$run)
  invisible(x)
}

#' @export
as.data.frame.hubbub_synthetic <- function(x, row.names = NULL, optional = FALSE, ...) x$records

#' @export
summary.hubbub_synthetic <- function(object, ...) {
  rows <- object$run$statistics[["synthetic records"]]$rows
  measured <- rows[rows$group == "measured", c("column", "level", "value", "standard_error", "low", "high")]
  row.names(measured) <- NULL
  measured
}

#' Several synthetic tables, for one analysis of each
#'
#' Each table comes from a model of its own, with as much fresh noise as the sums already have.
#'
#' @param synthetic What [hubbub_synthesize()] gave, or the path of a run's folder.
#' @param count How many tables; 20 are enough.
#' @return `hubbub_tables`: a list of data frames.
#' @examples
#' hubbub_combine(c(0.031, 0.029, 0.034, 0.030, 0.028))
#' @export
hubbub_tables <- function(synthetic, count = 20) {
  folder <- tempfile("tables-")
  on.exit(unlink(folder, recursive = TRUE))
  ask_command(c("sample", folder_of(synthetic), options_of(tables = count, out = folder)))
  paths <- file.path(folder, sprintf("table-%d.csv", seq_len(count)))
  columns <- if (inherits(synthetic, "hubbub_synthetic")) synthetic$columns
  lapply(paths, function(path) {
    table <- utils::read.csv(path, skip = 1, na.strings = "", check.names = FALSE, encoding = "UTF-8", colClasses = "character")
    is_number <- vapply(table, function(texts) is.numeric(utils::type.convert(texts, as.is = TRUE)), NA)
    table[is_number] <- lapply(table[is_number], numbers_of)
    with_types(table, columns)
  })
}

#' @rdname hubbub_tables
#' @param estimates One number of the same analysis of each table; ignore the standard errors that the
#'   analyses print.
#' @param confidence Of the interval.
#' @return `hubbub_combine`: a vector of `value`, `standard_error`, `low` and `high`.
#' @export
hubbub_combine <- function(estimates, confidence = 0.95) {
  count <- length(estimates)
  if (!is.numeric(estimates) || NCOL(estimates) != 1 || count < 5 || !all(is.finite(estimates))) {
    refuse(
      "expected 5 finite estimates or more, one of each table, got ", deparse1(estimates), "; run the analysis on each of the tables",
      class = "hubbub_bad_input"
    )
  }
  error <- sqrt((1 + 1 / count) * stats::var(estimates))
  reach <- stats::qt((1 + confidence) / 2, count - 1) * error
  value <- mean(estimates)
  c(value = value, standard_error = error, low = value - reach, high = value + reach)
}

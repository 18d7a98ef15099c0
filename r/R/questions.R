# Formulas become the keys of a question. What a formula cannot say is said by key.

#' Ask a question
#'
#' One question of a study: a table, a curve, a test or a regression. Formulas name columns;
#' everything else is a key of the study, under the name that it has in
#' docs/statistics.md, such as `bins`, `horizon`, `at`, `test`.
#'
#' | kind | formula |
#' |:-----|:--------|
#' | `"table"` | `~ age + sex`, or `~ age + sex \| arm` for groups side by side |
#' | `"quantiles"` | `days ~ 1`, or `days ~ arm` |
#' | `"histogram"` | `~ age` |
#' | `"crosstab"` | `~ arm + response` |
#' | `"survival"`, `"incidence"` | `Surv(time, event) ~ 1`, or `~ arm`, with `+ strata(centre)` |
#' | `"cox"` | `Surv(time, event) ~ age + arm`, with `age:arm`, `strata(centre)` |
#' | `"logistic"`, `"linear"` | `outcome ~ age + arm` |
#' | `"rates"` | `Surv(time, event) ~ ward` |
#' | `"centres"` | `outcome ~ hospital` |
#'
#' The event of `Surv()` is the second of two categories; `Surv(entry, time, event)` has late entries.
#' A number is divided into classes by `cut(age, c(-Inf, 60, 75, Inf))`; each class holds its lower
#' end, as with `right = FALSE`. In a regression a number that is not cut has one slope, which costs
#' more noise. What a question has no place for, such as a second group, is an error.
#'
#' @param kind One of the kinds above.
#' @param formula A formula as above; NULL if every column is named by key.
#' @param ... Keys, such as `horizon = 36`, `test = "log-rank"`, `reference = list(arm = "usual")`.
#' @return A question for [hubbub_study()] or [hubbub_statistics()].
#' @examples
#' hubbub_ask("cox", Surv(months, died) ~ cut(age, c(-Inf, 60, 75, Inf)) + treatment, horizon = 36)
#' @export
hubbub_ask <- function(kind, formula = NULL, ...) {
  if (!is.null(formula) && !inherits(formula, "formula")) {
    refuse(
      "expected a formula, such as Surv(time, event) ~ age + arm, got ", class(formula)[1],
      "; write one, or name the columns by key",
      class = "hubbub_bad_input"
    )
  }
  keys <- list(...)
  if (!is.character(kind) || length(kind) != 1 || !are_names(names(keys), length(keys))) {
    refuse(
      "expected a kind, a formula, and keys by name, each once, got ", deparse1(match.call()),
      "; write for example hubbub_ask(\"histogram\", ~ age, bins = 10)",
      class = "hubbub_bad_input"
    )
  }
  structure(list(kind = kind, formula = formula, keys = keys), class = "hubbub_question")
}

# Whether each of so many things has a name of its own.
are_names <- function(names, count) length(names) == count && all(nzchar(names)) && !anyDuplicated(names)

#' @export
print.hubbub_question <- function(x, ...) {
  cat(x$kind, if (!is.null(x$formula)) deparse1(x$formula), "\n")
  for (key in names(x$keys)) cat(" ", key, "=", deparse1(x$keys[[key]]), "\n")
  invisible(x)
}

# Questions by name; without a name one is called by its kind.
questions_of <- function(...) {
  questions <- list(...)
  names <- if (is.null(names(questions))) rep("", length(questions)) else names(questions)
  wrong <- function(...) {
    refuse(
      "expected questions of hubbub_ask() under names of their own, got ", ...,
      "; write for example baseline = hubbub_ask(\"table\", ~ age + sex)",
      class = "hubbub_bad_input"
    )
  }
  for (k in seq_along(questions)) {
    if (!inherits(questions[[k]], "hubbub_question")) wrong(names[k], if (nzchar(names[k])) " = ", class(questions[[k]])[1])
  }
  names <- ifelse(nzchar(names), names, make.unique(vapply(questions, `[[`, "", "kind")))
  if (!are_names(names, length(questions))) wrong(names[anyDuplicated(names)], " twice")
  stats::setNames(questions, names)
}

# A question's table; a key that is stated goes before what the formula says.
keys_of <- function(question, columns) {
  keys <- c(list(kind = question$kind), formula_keys(question$kind, question$formula, columns))
  keys[names(question$keys)] <- question$keys
  for (key in intersect(c("at", "trend"), names(keys))) keys[[key]] <- I(keys[[key]])
  keys
}

formula_keys <- function(kind, formula, columns) {
  if (is.null(formula)) return(list())
  left <- if (length(formula) == 3) formula[[2]]
  right <- formula[[length(formula)]]
  by <- NULL
  if (is.call(right) && identical(right[[1]], as.name("|"))) {
    by <- as_levels(right[[3]], formula)
    right <- right[[2]]
  }
  terms <- terms_of(right, formula, setdiff(names(columns), all.vars(left)))
  first <- if (length(terms$columns)) as_levels(terms$columns[[1]], formula)
  by <- if (is.null(by)) first else by
  is_regression <- kind %in% c("cox", "logistic", "linear")
  if (length(terms$pairs) && !is_regression) no_place(formula, kind, "pairs of columns")
  keys <- switch(kind,
    table = list(columns = I(lapply(terms$columns, as_levels, formula)), by = if (!identical(by, first)) by),
    quantiles = if (is.null(left)) list(column = first, by = if (!identical(by, first)) by) else list(column = as_name(left), by = by),
    histogram = list(column = first),
    crosstab = crosstab_keys(left, terms, formula),
    survival = , incidence = , rates = c(followed(left, columns), list(by = by, strata = strata_of(terms, formula))),
    cox = c(followed(left, columns), regression_keys(terms, formula, columns)),
    logistic = , linear = c(list(outcome = outcome_of(left, formula)), regression_keys(terms, formula, columns)),
    centres = list(outcome = outcome_of(left, formula), by = by),
    return(list()) # which the command refuses
  )
  keys <- Filter(Negate(is.null), keys)
  named <- c(all.vars(left), vapply(c(terms$columns, terms$strata), name_of, "", formula), columns_in(list(by)))
  unused <- setdiff(named, columns_in(unname(keys)))
  if (length(unused)) no_place(formula, kind, paste(unused, collapse = ", "))
  keys
}

outcome_of <- function(left, formula) {
  if (!is.null(left)) return(as_name(left))
  refuse("expected an outcome on the left of the formula, got ", deparse1(formula), "; write it there", class = "hubbub_bad_input")
}

no_place <- function(formula, kind, what) {
  refuse(
    "expected a formula of '", kind, "' as ?hubbub_ask has it, got ", deparse1(formula), ", where it has no place for ",
    what, "; leave it out, or ask it by a question of its own",
    class = "hubbub_bad_input"
  )
}

# The columns that keys name: as texts, or as names beside break points.
columns_in <- function(keys) {
  if (length(names(keys))) names(keys) else if (is.list(keys)) unlist(lapply(keys, columns_in)) else as.character(keys)
}

# The columns on the right of a formula, pairs that go together, and a column of strata.
terms_of <- function(right, formula, others) {
  data <- as.data.frame(stats::setNames(rep(list(0), length(others)), others), optional = TRUE)
  right <- stats::as.formula(call("~", right), environment(formula))
  terms <- stats::terms(right, specials = "strata", data = data)
  factors <- as.matrix(attr(terms, "factors"))
  variables <- as.list(attr(terms, "variables"))[-1]
  is_strata <- seq_along(variables) %in% attr(terms, "specials")$strata
  is_left_out <- if (length(factors)) rowSums(factors) == 0 else FALSE # as in ~ . - sex
  strata <- lapply(variables[is_strata], as.list)
  if (!attr(terms, "intercept") || length(attr(terms, "offset")) || any(attr(terms, "order") > 2) || sum(lengths(strata) - 1) > 1) {
    refuse(
      "expected columns, pairs of columns and strata() of one column in a formula, got ", deparse1(right),
      "; leave out what is more",
      class = "hubbub_bad_input"
    )
  }
  if (length(factors)) is_alone <- rowSums(factors[, attr(terms, "order") == 1, drop = FALSE]) > 0
  list(
    columns = variables[!is_strata & !is_left_out],
    alone = if (length(factors)) variables[!is_strata & is_alone],
    pairs = lapply(which(attr(terms, "order") == 2), function(k) variables[factors[, k] > 0]),
    strata = if (length(strata)) strata[[1]][[2]]
  )
}

regression_keys <- function(terms, formula, columns) {
  covariates <- lapply(terms$columns, function(term) {
    classes <- as_levels(term, formula)
    if (is.list(classes)) return(classes[[1]])
    is_number <- is.name(term) && is.null(columns[[classes]]$categories) && !is.null(columns[[classes]])
    if (is_number) "number" else "categories"
  })
  names(covariates) <- vapply(terms$columns, name_of, "", formula)
  if (length(terms$alone) < length(covariates) || !are_names(names(covariates), length(covariates))) {
    refuse(
      "expected each column of a regression once, and those of a pair also by themselves, got ", deparse1(formula),
      "; write age + arm + age:arm, or age * arm",
      class = "hubbub_bad_input"
    )
  }
  list(
    covariates = covariates,
    interactions = if (length(terms$pairs)) lapply(terms$pairs, function(pair) I(vapply(pair, name_of, "", formula))),
    strata = strata_of(terms, formula)
  )
}

strata_of <- function(terms, formula) if (!is.null(terms$strata)) as_levels(terms$strata, formula)

crosstab_keys <- function(left, terms, formula) {
  both <- c(if (!is.null(left)) list(left), terms$columns)
  if (length(both) != 2) {
    refuse("expected two columns for a crosstab, such as ~ arm + response, got ", length(both), "; name both", class = "hubbub_bad_input")
  }
  list(rows = as_levels(both[[1]], formula), columns = as_levels(both[[2]], formula))
}

# Surv(time, event) or Surv(entry, time, event) as keys.
followed <- function(left, columns) {
  call <- surv_call(left)
  if (is.null(call)) {
    refuse(
      "expected Surv(time, event) on the left of the formula, got ",
      if (is.null(left)) "nothing" else deparse1(left), "; write it so",
      class = "hubbub_bad_input"
    )
  }
  entry <- if (length(call) == 3) as_name(call[[1]])
  list(
    time = as_name(call[[length(call) - 1]]), event = event_name(call[[length(call)]], columns),
    entry = entry
  )
}

# The arguments of Surv(), two or three of them in R's order.
surv_call <- function(left) {
  if (!is.call(left) || !deparse1(left[[1]]) %in% c("Surv", "survival::Surv")) return(NULL)
  call <- as.list(matched(left, function(time, time2, event) NULL))[-1]
  if (!is.null(call$time2) && is.null(call$event)) names(call)[names(call) == "time2"] <- "event"
  call <- call[intersect(c("time", "time2", "event"), names(call))]
  if (length(call) >= 2 && !is.null(call$event)) unname(call)
}

# An event: a column, or `column == "category"` where that is the second category.
event_name <- function(event, columns) {
  if (!is.call(event) || !identical(event[[1]], as.name("=="))) return(as_name(event))
  column <- as_name(event[[2]])
  categories <- as.character(columns[[column]]$categories)
  if (length(categories) != 2 || categories[2] != as.character(event[[3]])) {
    refuse(
      "expected '", event[[3]], "' to be the second of two categories of '", column, "', got ",
      if (length(categories)) paste(categories, collapse = ", ") else "none",
      "; declare columns = list(", column, " = c(..., \"", event[[3]], "\"))",
      class = "hubbub_bad_input"
    )
  }
  column
}

# The events of a question, which are categories though they are 0 and 1.
events_of <- function(question) {
  left <- if (length(question$formula) == 3) question$formula[[2]]
  call <- surv_call(left)
  if (!is.null(call) && question$kind != "rates") return(all.vars(call[[length(call)]]))
  if (question$kind %in% c("logistic", "centres")) all.vars(left) else question$keys$event
}

# A column's name, or that of factor(column).
as_name <- function(term) {
  if (is.name(term)) return(as.character(term))
  if (is.call(term) && length(term) == 2 && deparse1(term[[1]]) %in% c("factor", "as.factor")) return(as_name(term[[2]]))
  refuse(
    "expected a column, cut(), factor() or strata() in a formula, got ", deparse1(term),
    "; sites compute no columns: have them in their tables, and declare them",
    class = "hubbub_bad_input"
  )
}

# A column's name, or with cut() its classes: a table of the name and break points.
as_levels <- function(term, formula) {
  if (!is.call(term) || deparse1(term[[1]]) != "cut") return(as_name(term))
  call <- matched(term, function(x, breaks, right = FALSE) NULL)
  name <- as_name(call$x)
  breaks <- tryCatch(eval(call$breaks, environment(formula)), error = conditionMessage)
  right <- tryCatch(eval(call$right, environment(formula)), error = conditionMessage)
  if (!is.numeric(breaks) || length(breaks) < 3 || is.finite(breaks[1]) || is.finite(breaks[length(breaks)]) || anyNA(breaks) || is.unsorted(breaks, strictly = TRUE)) {
    refuse(
      "expected breaks from -Inf to Inf, such as cut(", name, ", c(-Inf, 60, 75, Inf)), got ",
      deparse1(call$breaks), "; write them so: classes are public and hold every value",
      class = "hubbub_bad_input"
    )
  }
  if (!isFALSE(right) && !is.null(call$right)) {
    refuse("expected classes that hold their lower end, got ", deparse1(term), "; leave out right", class = "hubbub_bad_input")
  }
  stats::setNames(list(I(breaks[is.finite(breaks)])), name)
}

name_of <- function(term, formula) columns_in(as_levels(term, formula))

# The arguments of a call in a formula, by name.
matched <- function(call, arguments) {
  tryCatch(match.call(arguments, call), error = function(error) {
    refuse(
      "expected ", deparse1(call[[1]]), "() of ", paste(names(formals(arguments)), collapse = ", "),
      ", got ", deparse1(call), "; leave out what is more",
      class = "hubbub_bad_input"
    )
  })
}

# A study: data frames and formulas become the file that sites agree on, and files of records.

#' Describe a study
#'
#' A study says who takes part, what is public about each column, what is asked, and what it may
#' cost. Nothing is computed and nothing is spent: see [hubbub_plan()] for what it means, and
#' [hubbub_statistics()] or [hubbub_run()] for the answers.
#'
#' Only columns that are declared are written, into files of this R session that are deleted at its
#' end. Give `file` to keep the study itself, which holds no record, for sites on their own machines.
#'
#' @param sites A named list of data frames, one for each site, such as
#'   `split(clinics, clinics$site)`; or a character vector of the sites' names, if their records are
#'   elsewhere.
#' @param ... What is asked, each with a name of its own: [hubbub_ask()].
#' @param columns What is public about each column, from the study's protocol and not from records:
#'   a named list with bounds such as `c(30, 90)`, categories such as `c("F", "M")`, `c(FALSE, TRUE)`,
#'   or a list of keys such as `list(low = 0, high = 48, step = 1)`. A logical column, and an event
#'   of 0 and 1 in `Surv()`, need not be declared.
#' @param epsilon What the study may cost; smaller promises more.
#' @param delta The chance with which the promise may fail.
#' @param colluders How many sites may join the adversary.
#' @param records Public number of units over all sites, about right is enough; the number of rows if
#'   left out, which then counts as public.
#' @param capacity Public number: the most units that a site may hold.
#' @param patient Column that says whose a row is: all rows of a patient are then one unit.
#' @param most_per_patient How many rows of a patient count; beside `patient`.
#' @param cap The most that the sites' records may spend in all studies; a ledger without one takes it.
#' @param holm Names of questions whose p-values are one family, adjusted after Holm.
#' @param synthetic Keys of synthetic records, see [hubbub_synthesize()].
#' @param name The study's name.
#' @param file Where to write the study; a file of this R session if left out.
#' @return A `hubbub_study`: `path` of its file, `folder` of the records, `columns`.
#' @examples
#' study <- hubbub_study(
#'   c("north", "south", "west"),
#'   survival = hubbub_ask("survival", Surv(months, died) ~ treatment, horizon = 36),
#'   columns = list(
#'     months = c(0, 48), died = c("no", "yes"), treatment = c("usual", "new")
#'   ),
#'   epsilon = 1, records = 2200
#' )
#' study
#' @export
hubbub_study <- function(sites, ..., columns, epsilon, delta = 1e-5, colluders = 1, records = NULL,
                         capacity = NULL, patient = NULL, most_per_patient = NULL, cap = NULL,
                         holm = NULL, synthetic = NULL, name = "statistics", file = NULL) {
  tables <- tables_of(sites)
  questions <- questions_of(...)
  if (!length(questions) && is.null(synthetic)) {
    refuse(
      "expected a question or more, got none; add one under a name of its own, for example ",
      "baseline = hubbub_ask(\"table\", ~ age + sex)",
      class = "hubbub_bad_input"
    )
  }
  columns <- declared(columns, questions, tables)
  units <- if (length(tables)) units_of(tables, patient)
  content <- list(
    study = list(name = name, transcript = if (length(questions)) "full"),
    parties = list(names = I(if (length(tables)) names(tables) else sites), colluders = colluders),
    data = list(
      files = "{name}.csv", patient = patient, most_per_patient = most_per_patient,
      records = if (is.null(records)) units else records, capacity = capacity
    ),
    data.columns = columns,
    statistics = list(holm = if (length(holm)) I(holm)),
    synthetic = synthetic,
    privacy = list(epsilon = epsilon, delta = delta, cap = cap)
  )
  keys <- lapply(questions, keys_of, columns)
  names(keys) <- sprintf("statistics.%s", vapply(names(questions), toml_key, ""))
  content <- append(content, keys, match("statistics", names(content)))
  folder <- records_folder(tables, c(names(columns), patient))
  path <- study_path(file)
  writeLines(enc2utf8(toml_of(content)), path, useBytes = TRUE)
  study <- list(path = normalizePath(path), folder = folder, columns = columns)
  study$note <- if (is.null(records) && length(tables)) {
    sprintf("note: the number of units, %d, was read from the tables and counts as public", units)
  }
  structure(study, class = "hubbub_study")
}

# Where a study is written.
study_path <- function(file) {
  if (is.null(file)) return(tempfile("study-", fileext = ".toml"))
  if (!dir.exists(dirname(file))) {
    refuse(
      "expected a folder for the study at ", dirname(file), ", found none; create it",
      class = "hubbub_bad_input"
    )
  }
  absolute(file)
}

#' @export
print.hubbub_study <- function(x, ...) {
  cat(readLines(x$path, encoding = "UTF-8"), x$note, paste("# in", x$path), sep = "\n")
  invisible(x)
}

# A study, or the path of one.
study_of <- function(study) {
  if (inherits(study, "hubbub_study")) return(study)
  if (!is.character(study) || length(study) != 1 || is.na(study)) {
    refuse(
      "expected a study, of hubbub_study() or hubbub_init(), or the path of its file, got ",
      class(study)[1], "; hand one over",
      class = "hubbub_bad_input"
    )
  }
  structure(list(path = path.expand(study), folder = getwd()), class = "hubbub_study")
}

# Data frames by site; an empty list where only names are given.
tables_of <- function(sites) {
  if (is.character(sites) && length(sites)) return(list())
  named <- is.list(sites) && !is.data.frame(sites) && length(names(sites)) == length(sites)
  if (!named || !length(sites) || !all(vapply(sites, is.data.frame, NA))) {
    refuse(
      "expected a named list of data frames, one for each site, such as ",
      "list(north = north, south = south) or split(data, data$site), got ",
      if (is.list(sites) && !is.data.frame(sites)) "a list of other things" else class(sites)[1],
      "; hand such a list over",
      class = "hubbub_bad_input"
    )
  }
  lapply(sites, as.data.frame)
}

# How many units all tables hold.
units_of <- function(tables, patient) {
  count <- function(table) {
    if (is.null(patient)) nrow(table) else length(unique(table[[patient]]))
  }
  sum(vapply(tables, count, 0L))
}

# Columns as a study has them: what is stated, and what R itself says of truth values and events.
declared <- function(columns, questions, tables) {
  if (!is.list(columns) || !are_names(names(columns), length(columns))) {
    refuse(
      "expected columns to be a list with a name for each, such as list(age = c(30, 90), sex = c(\"F\", \"M\")), got ",
      if (is.list(columns)) paste("the names", deparse1(names(columns))) else class(columns)[1],
      "; say what is public about each, once",
      class = "hubbub_bad_input"
    )
  }
  events <- unlist(lapply(questions, events_of))
  used <- unlist(lapply(questions, function(question) all.vars(question$formula)))
  for (column in setdiff(c(used, events), names(columns))) {
    holds <- function(is_such) {
      length(tables) > 0 && all(vapply(tables, function(table) is_such(table[[column]]), NA))
    }
    if (holds(is.logical)) columns[[column]] <- c(FALSE, TRUE)
    if (column %in% events && holds(is.numeric)) columns[[column]] <- c(0, 1)
  }
  Map(declaration, columns, names(columns), names(columns) %in% events)
}

# What is public about a column.
declaration <- function(value, column, is_event) {
  if (is.list(value)) return(value)
  if (is.factor(value)) value <- levels(value)
  if (is.logical(value)) value <- as.character(value)
  if (is_event && is.numeric(value) && setequal(value, 0:1)) value <- c("0", "1")
  if (is.character(value) && !anyNA(value)) return(list(categories = I(value)))
  if (is.numeric(value) && !is.object(value) && length(value) == 2) {
    return(list(low = value[1], high = value[2]))
  }
  refuse(
    "expected of column '", column, "' two bounds, or categories, got ", length(value),
    " values of class ", class(value)[1], if (anyNA(value)) ", some of them missing", "; write c(low, high), c(\"a\", \"b\"), or a list of keys",
    class = "hubbub_bad_input"
  )
}

# The columns in which records are written, one file for each site; the same records, the same folder.
records_folder <- function(tables, columns) {
  folder <- tempfile("records-")
  dir.create(folder, mode = "0700")
  # Names that are no names of files are refused by the command, which says why.
  for (site in grep("^[A-Za-z0-9_-][A-Za-z0-9_.-]*$", names(tables), value = TRUE)) {
    path <- file.path(folder, paste0(site, ".csv"))
    table <- as.list(tables[[site]]) # in which a name may stand twice, which the command refuses
    write_table(table[order(match(names(table), columns), na.last = NA)], path, site)
  }
  if (!length(tables)) return(getwd())
  same <- file.path(tempdir(), paste0("records-", digest_of(list.files(folder, full.names = TRUE))))
  if (dir.exists(same)) unlink(folder, recursive = TRUE) else file.rename(folder, same)
  same
}

# A digest of files, of their contents and of what they are called, and of further words.
digest_of <- function(paths, names = basename(paths), more = NULL) {
  listed <- tempfile()
  on.exit(unlink(listed))
  writeLines(c(paste(names, tools::md5sum(paths)), more), listed)
  unname(tools::md5sum(listed))
}

# A data frame as CSV in UTF-8, readable by its owner only.
write_table <- function(table, path, site) {
  cells <- Map(spelled, table, names(table), MoreArgs = list(site = site))
  lines <- do.call(paste, c(unname(cells), list(sep = ",")))
  file.create(path)
  Sys.chmod(path, "0600")
  header <- paste(quoted(names(table)), collapse = ",")
  writeLines(enc2utf8(c(header, lines)), path, useBytes = TRUE)
}

# Cells as text.
spelled <- function(values, column, site) {
  if (is.factor(values)) values <- as.character(values)
  if (!is_plain(values)) {
    refuse(
      "expected numbers, texts or truth values in column '", column, "' of ", site, ", found ",
      class(values)[1], "; leave it out or make it numbers, for example days since a day of the protocol: ",
      "as.numeric(as.Date(", column, ") - as.Date(\"2020-01-01\"))",
      class = "hubbub_bad_input"
    )
  }
  values <- unclass(values) # a class may refuse to be read, such as a label's whose package is not loaded
  text <- if (is.numeric(values)) number_text(as.numeric(values)) else quoted(as.character(values))
  ifelse(is.na(values), "\"\"", text)
}

# Whether a file can have them as they are.
is_plain <- function(values) {
  plain <- is.numeric(values) || is.character(values) || is.logical(values) || is.factor(values)
  # integer64 keeps its bits in a double, which only its own package reads.
  plain && NCOL(values) == 1 && !inherits(values, "integer64")
}

# Numbers in the fewest digits that give them back.
number_text <- function(values) {
  with_points({
    text <- sprintf("%.15g", values)
    longer <- is.finite(values)
    longer[longer] <- numbers_of(text[longer]) != values[longer]
    text[longer] <- sprintf("%.17g", values[longer])
    text
  })
}

# Texts as the nearest numbers, which R's own reading misses by a bit in one of 10,000.
numbers_of <- function(text) {
  as.numeric(from_json(paste0("[", paste(ifelse(is.na(text), "null", text), collapse = ","), "]")))
}

quoted <- function(text) {
  if (!all(validEnc(text))) {
    refuse("expected texts of an encoding that R knows in the tables, found other bytes; see ?Encoding", class = "hubbub_bad_input")
  }
  paste0("\"", gsub("\"", "\"\"", text, fixed = TRUE), "\"")
}

# A study's tables as TOML.
toml_of <- function(content) {
  lines <- Map(function(name, table) {
    table <- Filter(Negate(is.null), table)
    if (length(table)) c(paste0("[", name, "]"), Map(toml_line, names(table), table), "")
  }, names(content), content)
  unlist(lines, use.names = FALSE)
}

toml_line <- function(key, value) paste(toml_key(key), "=", toml_value(value))

toml_key <- function(key) if (grepl("^[A-Za-z0-9_-]+$", key)) key else toml_text(key)

toml_text <- function(text) as.character(jsonlite::toJSON(enc2utf8(text), auto_unbox = TRUE))

# A value: a list with names is a table, a vector of several or as is (`I`) an array.
toml_value <- function(value) {
  value <- if (is.list(value)) Filter(Negate(is.null), value) else value
  if (is.list(value) && length(names(value))) {
    return(paste0("{ ", paste(Map(toml_line, names(value), value), collapse = ", "), " }"))
  }
  if (is.factor(value)) value <- as.character(value)
  if (is.list(value) || inherits(value, "AsIs") || length(value) != 1) {
    return(paste0("[", paste(vapply(unclass(value), toml_value, ""), collapse = ", "), "]"))
  }
  if (is.character(value) && !is.na(value) && validEnc(value)) return(toml_text(value))
  if (isTRUE(value) || isFALSE(value)) return(tolower(value))
  if (is.numeric(value) && !is.object(value) && !is.na(value)) return(toml_number(value))
  refuse(
    "expected numbers, texts or truth values in a study, got ", deparse1(value), "; replace it",
    class = "hubbub_bad_input"
  )
}

toml_number <- function(value) {
  if (is.finite(value) && value == round(value) && abs(value) < 1e15) return(sprintf("%.0f", value))
  sub("Inf", "inf", number_text(value))
}

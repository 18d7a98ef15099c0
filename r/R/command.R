# The command line, which does all the work: words go in, one JSON object comes out.
#
# Errors are its sentences. What it says of an option is said again as R has it.

#' The command hubbub
#'
#' Every function of this package runs the command `hubbub`. It is looked for in
#' `options(hubbub.command = )`, in the environment variable `HUBBUB_COMMAND`, and on the `PATH`.
#'
#' Errors are conditions of class `hubbub_error` with the command's own sentence: what was expected,
#' what was found, what to do. `hubbub_bad_input` is a mistake in what was handed over,
#' `hubbub_refusal` a budget or a check that says no, `hubbub_interrupted` a run that was stopped,
#' `hubbub_questions` what has to be answered before a study can be drafted. Each has the fields
#' `status`, the exit code, and `command`, the words that were run. Progress is a message of class
#' `hubbub_progress`.
#'
#' @return A character vector: the program, and words that go before all others.
#' @examples
#' \dontrun{
#' options(hubbub.command = "~/hubbub/.venv/bin/hubbub")
#' hubbub_command()
#' }
#' @export
hubbub_command <- function() {
  command <- getOption("hubbub.command", Sys.getenv("HUBBUB_COMMAND"))
  place <- paste("at", command[1])
  if (!isTRUE(nzchar(command[1], keepNA = TRUE))) {
    command <- unname(Sys.which("hubbub"))
    place <- "on the PATH"
  }
  program <- Sys.which(path.expand(command[1]))
  if (!nzchar(program)) {
    refuse(
      "expected the command hubbub ", place, ", found none; install hubbub, or say where it is: ",
      'options(hubbub.command = "/home/me/hubbub/.venv/bin/hubbub")',
      class = "hubbub_bad_input"
    )
  }
  # It runs in other folders. A link stays: an environment's Python is one.
  c(file.path(normalizePath(dirname(program)), basename(program)), command[-1])
}

# Run a command; its JSON object, with the exit code as an attribute.
ask_command <- function(words, folder = getwd(), progress = FALSE) {
  command <- c(hubbub_command(), words, "--json")
  out <- tempfile("hubbub-", fileext = ".json")
  on.exit(unlink(out))
  process <- tryCatch(
    processx::process$new(
      command[1], command[-1],
      wd = folder, stdout = out, stderr = "|", cleanup_tree = TRUE, encoding = "UTF-8",
      env = c("current", PYTHONUTF8 = "1", NO_COLOR = "1")
    ),
    error = function(error) refuse(
      "expected ", command[1], " to start, it does not: ", conditionMessage(error),
      "; its Python may be gone: install hubbub again",
      class = "hubbub_bad_input", command = command
    )
  )
  # However this is left, by a handler of the caller's too, nothing goes on.
  on.exit(end(process), add = TRUE)
  lines <- listen(process, progress)
  end(process)
  status <- process$get_exit_status()
  sentences <- sub("^hubbub: ", "", grep("^hubbub: ", lines, value = TRUE))
  text <- paste(readLines(out, encoding = "UTF-8", warn = FALSE), collapse = "\n")
  if (!jsonlite::validate(text)) refuse_as(sentences, c(text, lines), status, command)
  for (sentence in sentences) warn(sentence)
  structure(from_json(text), status = status)
}

# What a JSON text or file holds.
from_json <- function(text) {
  with_points(jsonlite::fromJSON(text, simplifyDataFrame = FALSE, simplifyMatrix = FALSE))
}

# Something done while numbers have decimal points: in a locale of commas jsonlite reads 2.5 as 2.
with_points <- function(value) {
  locale <- Sys.getlocale("LC_NUMERIC")
  if (locale != "C") {
    Sys.setlocale("LC_NUMERIC", "C")
    on.exit(suppressWarnings(Sys.setlocale("LC_NUMERIC", locale))) # R warns of any but C
  }
  value
}

# All lines on stderr; an interrupt is handed on, and the program says what it has saved.
listen <- function(process, progress) {
  lines <- character()
  hear <- function() {
    new <- process$read_error_lines()
    lines <<- c(lines, new)
    if (progress) lapply(grep("^hubbub: ", new, invert = TRUE, value = TRUE), tell)
  }
  follow <- function(seconds) {
    until <- Sys.time() + seconds
    while ((process$is_alive() || process$is_incomplete_error()) && Sys.time() < until) {
      process$poll_io(200)
      hear()
    }
  }
  tryCatch(follow(Inf), interrupt = function(signal) {
    process$interrupt()
    follow(60)
  })
  lines
}

# Interrupted, so that it may save what it has; if it does not end, killed.
end <- function(process) {
  if (process$is_alive()) {
    process$interrupt()
    process$wait(10000)
  }
  process$kill_tree()
}

# The error that an exit code stands for, in the command's words.
refuse_as <- function(sentences, lines, status, command) {
  if (identical(status, -2L)) sentences <- "interrupted before anything was saved" # it had not begun
  for (sentence in utils::head(sentences, -1)) warn(sentence)
  class <- if (length(sentences)) switch(as.character(status),
    "1" = "hubbub_refusal", "2" = "hubbub_bad_input", "130" = , "-2" = "hubbub_interrupted"
  )
  # What is no sentence of the command is a fault of the program: all that it has printed.
  sentence <- utils::tail(sentences, 1)
  if (length(sentence)) sentence <- paste0(sentence, in_r(sentence)) else {
    first <- sprintf("expected an answer of %s, found none; its exit code was %d", command[1], status)
    sentence <- paste(c(first, lines[nzchar(lines)]), collapse = "\n")
  }
  refuse(sentence, of_another_version(command[1]), class = class, status = status, command = command)
}

# What to say of a command that is not this package's.
of_another_version <- function(program) {
  said <- tryCatch(processx::run(program, "--version", timeout = 30)$stdout, error = function(error) "")
  version <- sub("^hubbub ([0-9.]+).*", "\\1", said)
  if (version == said || version == utils::packageVersion("hubbub")) return("")
  sprintf("\n(%s is version %s, this package %s: install both of one version)", program, version, utils::packageVersion("hubbub"))
}

# How R has the options that a sentence names.
in_r <- function(sentence) {
  options <- unique(regmatches(sentence, gregexpr("(?<![\\w-])--[a-z][a-z-]+", sentence, perl = TRUE))[[1]])
  options <- setdiff(options, "--help")
  if (!length(options)) return("")
  arguments <- gsub("-", "_", sub("^--", "", options))
  paste0("\n(in R: ", paste(options, "is the argument", arguments, collapse = ", "), ")")
}

refuse <- function(..., class = NULL, status = NULL, command = NULL, more = list()) {
  stop(structure(
    class = c(class, "hubbub_error", "error", "condition"),
    c(list(message = paste0(...), call = NULL, status = status, command = command), more)
  ))
}

warn <- function(sentence) {
  warning(structure(
    class = c("hubbub_warning", "warning", "condition"), list(message = sentence, call = NULL)
  ))
}

tell <- function(line) {
  message(structure(
    class = c("hubbub_progress", "message", "condition"),
    list(message = paste0(line, "\n"), call = NULL)
  ))
}

# Options of a command: NULL leaves one out, TRUE is a flag, and a vector has commas. A value stays one
# whatever it begins with, a number keeps its digits, and a path is of R's folder.
options_of <- function(...) {
  values <- Filter(function(value) !is.null(value) && !isFALSE(value), list(...))
  words <- Map(function(name, value) {
    option <- paste0("--", gsub("_", "-", name))
    if (isTRUE(value)) return(option)
    if (name %in% c("audit", "data", "ledgers", "out", "query", "tidy")) value <- absolute(value)
    if (name == "log" && grepl("^(jsonl|tensorboard):.", value)) {
      value <- paste0(sub(":.*", ":", value), absolute(sub("^[a-z]*:", "", value)))
    }
    if (is.numeric(value)) value <- vapply(value, toml_number, "")
    paste0(option, "=", paste(value, collapse = ","))
  }, names(values), values)
  unlist(words, use.names = FALSE)
}

absolute <- function(path) {
  path <- path.expand(path)
  ifelse(grepl("^(/|[A-Za-z]:)", path), path, file.path(getwd(), path))
}

# A list of JSON objects as a data frame; null is NA.
frame_of <- function(objects, fields) {
  columns <- lapply(stats::setNames(fields, fields), function(field) {
    values <- lapply(objects, `[[`, field)
    values[lengths(values) == 0] <- NA
    if (length(values)) unlist(values) else logical()
  })
  as.data.frame(columns, stringsAsFactors = FALSE, optional = TRUE)
}

# From files or data frames to a run: draft, check, plan, run, predict, verify.

#' Draft a study from tables
#'
#' Reads the tables on this machine, sends nothing, and writes a study that trains a model. Values
#' that it read from records are marked in its file: look through it, replace them by what is known
#' without looking, and go on with [hubbub_check()], [hubbub_plan()] and [hubbub_run()].
#'
#' What tables cannot say is asked: then nothing is written, and the error, of class
#' `hubbub_questions`, has each question with the arguments that answer it.
#'
#' @param sites A named list of data frames, one for each site; or paths of CSV or Parquet files.
#' @param formula What to learn and from what: `died ~ .`, `died ~ age + sex`,
#'   `Surv(months, died) ~ .`; NULL: it is guessed. Of files only the left side is taken.
#' @param ... Further options of `hubbub init`, such as `patient = "pid"`,
#'   `records_are_units = TRUE`, `codes = c("ward", "icd")`, `kind = "numeric"`, `test_share = 0.2`.
#' @param file The study to write; a file of this R session if left out.
#' @return A `hubbub_study`, with the fields `faults` of the tables, `left_out` columns, and what is
#'   `private` in the draft.
#' @examples
#' \dontrun{
#' study <- hubbub_init(split(clinics, clinics$site), died ~ age + sex + treatment)
#' file.edit(study$path)
#' }
#' @export
hubbub_init <- function(sites, formula = NULL, ..., file = NULL) {
  left <- if (length(formula) == 3) formula[[2]]
  call <- lapply(surv_call(left), as_name)
  if (length(call) == 3) refuse("expected Surv(time, event) of a model, got ", deparse1(left), "; leave out the entry", class = "hubbub_bad_input")
  learned <- if (length(call)) stats::setNames(call, c("time", "event")) else if (!is.null(left)) list(target = as_name(left))
  folder <- getwd()
  if (is.character(sites)) files <- path.expand(sites) else {
    tables <- tables_of(sites)
    columns <- unique(unlist(lapply(tables, names)))
    if (!is.null(formula)) columns <- c(learned, inputs_of(formula, setdiff(columns, learned)), list(...)$patient)
    folder <- records_folder(tables, columns)
    files <- paste0(names(tables), ".csv")
  }
  path <- study_path(file)
  words <- c("init", files, options_of(out = path), do.call(options_of, c(learned, list(...))))
  draft <- ask_command(words, folder)
  if (length(draft$questions)) refuse_questions(draft)
  study <- list(path = path, folder = folder, note = draft_note(draft))
  study$faults <- faults_of(draft)
  study$left_out <- unlist(draft$left_out)
  study$private <- draft$private
  structure(study, class = "hubbub_study")
}

# The columns that a model is to learn from: a draft takes them as they are.
inputs_of <- function(formula, columns) {
  terms <- terms_of(formula[[length(formula)]], formula, columns)
  inputs <- vapply(terms$columns, function(term) if (is.name(term)) as.character(term) else deparse1(term), "")
  wrong <- c(setdiff(inputs, columns), if (length(terms$pairs)) "pairs", if (!is.null(terms$strata)) "strata")
  if (length(wrong)) {
    refuse(
      "expected columns out of ", paste(columns, collapse = ", "), " joined by +, got ", deparse1(formula),
      "; take out ", paste(wrong, collapse = ", "),
      class = "hubbub_bad_input"
    )
  }
  inputs
}

draft_note <- function(draft) {
  c(
    if (!draft$ready) "note: a run cannot read these tables yet; see hubbub_check()",
    paste0("note: from records, so agree on it or replace it before others see it: ", paste(draft$private, collapse = "; "))
  )
}

# Questions, each with the arguments of R that answer it.
refuse_questions <- function(draft) {
  words <- vapply(draft$questions, function(question) {
    choices <- vapply(question$choices, function(choice) {
      paste0("  ", as_arguments(choice$options), ": ", choice$means)
    }, "")
    paste(c(question$asked, choices), collapse = "\n")
  }, "")
  refuse(
    paste(words, collapse = "\n"), "\nnothing was written: answer with these arguments",
    class = "hubbub_questions", status = 1L, more = list(questions = draft$questions)
  )
}

# Options such as --time months --records-are-units as R's arguments.
as_arguments <- function(options) {
  starts <- grepl("^--", options)
  groups <- split(options, cumsum(starts))
  paste(vapply(groups, function(group) {
    name <- gsub("-", "_", sub("^--", "", group[1]))
    paste(name, "=", if (length(group) == 1) "TRUE" else deparse1(group[-1]))
  }, ""), collapse = ", ")
}

#' List all that is wrong with a study's tables
#'
#' Everything that a run would refuse, and what is odd. It may quote cells, so keep it to yourself.
#'
#' @param study A study of [hubbub_study()] or [hubbub_init()], or the path of its file.
#' @param site Only the table of this site.
#' @param data Folder of the files, for a study given by its path.
#' @return A data frame with a row for each fault: `file`, `column`, `row`, how many `rows`, what was
#'   `found`, the `remedy`, and whether a run `refused` it. No rows: a run can read all tables.
#' @examples
#' \dontrun{
#' hubbub_check("study.toml")
#' }
#' @export
hubbub_check <- function(study, site = NULL, data = NULL) {
  study <- study_of(study)
  words <- c("check", study$path, options_of(silo = site, data = data))
  faults_of(ask_command(words, study$folder))
}

faults_of <- function(answer) {
  fields <- c("file", "column", "row", "rows", "found", "remedy", "refused")
  frame_of(answer$faults, fields)
}

#' What a study means, before any record is touched
#'
#' @param study A study of [hubbub_study()] or [hubbub_init()], or the path of its file.
#' @param epsilon Another epsilon, for a trial.
#' @param set Other values for a trial, such as `list(training.steps = 100)`.
#' @return A `hubbub_plan`: a list with `adversaries`, a data frame with what each can learn about one
#'   unit, `statistics`, a data frame that says whether each question will be answered and how
#'   exactly, `warnings`, and `details`, everything that the command says.
#' @examples
#' \dontrun{
#' hubbub_plan("study.toml", epsilon = 0.5)
#' }
#' @export
hubbub_plan <- function(study, epsilon = NULL, set = list()) {
  study <- study_of(study)
  if (length(names(set)) != length(set)) {
    refuse("expected values by name, such as set = list(training.steps = 100), got ", deparse1(set), "; name each", class = "hubbub_bad_input")
  }
  values <- vapply(set, toml_value, "")
  trial <- unlist(lapply(sprintf("%s=%s", names(set), values), function(pair) c("--set", pair)))
  plan <- ask_command(c("plan", study$path, options_of(epsilon = epsilon), trial), study$folder)
  adversaries <- frame_of(plan$epsilon, c("adversary", "noise_multiplier", "epsilon"))
  adversaries$promised <- adversaries$adversary == plan$stated_adversary
  structure(
    list(
      study = plan$study, adversaries = adversaries, statistics = expected_of(plan$statistics),
      delta = plan$delta, unit = plan$unit, warnings = as.character(plan$warnings), details = plan
    ),
    class = "hubbub_plan"
  )
}

# What is said of each question beforehand.
expected_of <- function(statistics) {
  fields <- c("answered", "possible", "least_epsilon", "part", "sentence")
  frame <- frame_of(unname(statistics), fields)
  cbind(data.frame(statistic = as.character(names(statistics))), frame)
}

#' @export
print.hubbub_plan <- function(x, ...) {
  cat(sprintf("%s: what each adversary can learn about one %s (delta %g)\n", x$study, x$unit, x$delta))
  print(x$adversaries, row.names = FALSE, digits = 4)
  words <- ifelse(x$statistics$answered, "yes", ifelse(x$statistics$possible, "perhaps", "no"))
  cat(sprintf("%s: answered: %s; %s\n", x$statistics$statistic, words, x$statistics$sentence), sep = "")
  for (sentence in x$warnings) cat("note:", sentence, "\n")
  invisible(x)
}

#' Run a study with all sites on this machine
#'
#' Plays every party of the protocol here. Each site's ledger, in the folder `ledgers` beside `out`, is
#' charged before it answers. The same study of the same records in the same `out` is not asked again:
#' its answers are read, at no cost, and a run that was interrupted goes on.
#'
#' @param study A study of [hubbub_study()] or [hubbub_init()], or the path of its file.
#' @param out Folder for the run. If left out, one of this R session, whose ledgers are of this
#'   session, too: give it for records of real people.
#' @param progress Whether progress is shown, as messages.
#' @param resume Folder of an interrupted run to go on with, instead of a study.
#' @param ... Further options of `hubbub run`, such as `ledgers = "ledgers"`, `device = "cpu"`.
#' @return A `hubbub_run`, see [hubbub_read()].
#' @examples
#' \dontrun{
#' run <- hubbub_run("study.toml", out = "runs/first")
#' run
#' hubbub_verify(run)
#' predict(run, new_patients)
#' }
#' @export
hubbub_run <- function(study = NULL, out = NULL, progress = TRUE, resume = NULL, ...) {
  more <- options_of(progress = progress, ...)
  if (!is.null(resume)) {
    ran <- ask_command(c("run", "--resume", path.expand(resume), more), progress = progress)
    return(hubbub_read(ran$out, ran))
  }
  study <- study_of(study)
  if (!file.exists(study$path)) ask_command(c("run", study$path), study$folder) # it refuses
  digest <- digest_of_run(study, more)
  if (is.null(out)) out <- file.path(tempdir(), "hubbub", paste0("run-", digest))
  out <- absolute(out)
  mark <- file.path(dirname(out), "ledgers", paste0(basename(out), ".r"))
  if (dir.exists(out) && file.exists(mark) && identical(readLines(mark), digest)) {
    run <- read_again(out, study$folder, more, progress)
  } else {
    if (!dir.exists(out)) note_digest(mark, digest)
    if (is.null(list(...)$ledgers)) more <- c(more, "--ledgers", dirname(mark))
    ran <- ask_command(c("run", study$path, "--out", out, more), study$folder, progress)
    run <- hubbub_read(out, ran)
  }
  run$notes <- c(run$notes, study$note)
  run
}

# A digest of a study, of the files of records that it names, and of what is tried instead of its values.
digest_of_run <- function(study, options) {
  key <- "^ *files *= *[\"']([^\"']*)[\"'].*"
  named <- sub(key, "\\1", grep(key, readLines(study$path, warn = FALSE), value = TRUE))
  here <- setwd(study$folder) # in whose path no letter is a pattern
  on.exit(setwd(here))
  files <- Sys.glob(sub("/$", "/*", gsub("{name}", "*", named, fixed = TRUE)))
  digest_of(c(study$path, files), c("study", basename(files)), grep("^--(epsilon|set|baseline)=", options, value = TRUE))
}

# Which study of which records a folder is of; it stays beside the ledgers.
note_digest <- function(mark, digest) {
  dir.create(dirname(mark), recursive = TRUE, showWarnings = FALSE)
  file.create(mark)
  Sys.chmod(mark, "0600")
  writeLines(digest, mark)
}

# A run of before: its answers, or the rest of it.
read_again <- function(out, folder, more, progress) {
  if (file.exists(file.path(out, "evidence.json"))) {
    if (progress) tell(paste("answered before, read again at no cost:", out))
    return(hubbub_read(out))
  }
  hubbub_read(out, ask_command(c("run", "--resume", out, more), folder, progress))
}

#' Read the folder of a run
#'
#' @param folder Of a run of [hubbub_run()] or `hubbub run`, or of a site's copy of what it gave.
#' @param ran For internal use: what the command printed.
#' @return A `hubbub_run`: a list with `folder`; `epsilon`, `delta` and `adversary` of the promise;
#'   `statistics`, the answers; `validation`, how good the model is, and `scores` on public test
#'   records; `spending` of the ledgers; and `notes`.
#' @examples
#' \dontrun{
#' hubbub_read("runs/first")$statistics
#' }
#' @export
hubbub_read <- function(folder, ran = NULL) {
  force(ran) # the folder is full only after it
  folder <- folder_of(folder)
  read <- function(name) {
    path <- file.path(folder, name)
    if (file.exists(path)) from_json(path)
  }
  plan <- read("plan.json")
  answers <- c(read("statistics.json")$statistics, read("synthetic.json")$statistics)
  if (is.null(plan) && !length(answers)) {
    refuse(
      "expected the folder of a run at ", folder, ", found neither plan.json nor statistics.json in ",
      "it; name the folder that was out",
      class = "hubbub_bad_input"
    )
  }
  metrics <- file.path(folder, "metrics.jsonl")
  last <- if (file.exists(metrics)) from_json(utils::tail(readLines(metrics), 1))
  structure(
    list(
      folder = normalizePath(folder), study = plan$study, epsilon = last$epsilon, delta = plan$delta,
      adversary = plan$stated_adversary, statistics = answers_of(answers),
      validation = read("validation.json"), scores = ran$scores, final = last,
      spending = read("spending.json"), notes = c(ran$warnings, if (isTRUE(attr(ran, "status") == 1)) copied)
    ),
    class = "hubbub_run"
  )
}

copied <- paste(
  "the study's attempts are used up: another copy of this folder, or a run beside it, has made those",
  "that are missing here, and they count as spent"
)

#' @export
print.hubbub_run <- function(x, ...) {
  cat(promise_of(x))
  for (name in names(x$statistics)) cat(sprintf("  %s: %s\n", name, x$statistics[[name]]$title))
  scores <- summary(x)
  if (nrow(scores)) print(scores, row.names = FALSE, digits = 3)
  cat_notes(x)
  cat("in", x$folder, "\n")
  invisible(x)
}

# What a run promises.
promise_of <- function(run) {
  sprintf("%s: epsilon %.3g at delta %g against the %s\n", run$study, run$epsilon, run$delta, run$adversary)
}

cat_notes <- function(run) for (note in run$notes) cat(sub("^(note: )?", "note: ", note), "\n", sep = "")

#' @describeIn hubbub_read The scores of a model, with intervals that include the noise.
#' @param object,x A run.
#' @param ... Not used.
#' @export
summary.hubbub_run <- function(object, ...) {
  scores <- c(object$validation$all$scores, object$scores)
  frame_of(unname(scores), c("name", "value", "low", "high"))
}

#' @describeIn hubbub_read Observed against predicted risk, from the private validation.
#' @export
plot.hubbub_run <- function(x, ...) {
  curve <- x$validation$all$calibration
  if (is.null(curve)) {
    refuse(
      "expected a run with a calibration of its private validation, found none; plot its ",
      "statistics by name, or ask for [validation]",
      class = "hubbub_bad_input"
    )
  }
  graphics::plot(curve$x, curve$y, xlim = 0:1, ylim = 0:1, pch = 19, xlab = "predicted", ylab = "observed", main = "Calibration", ...)
  graphics::segments(curve$x, curve$low, curve$x, curve$high)
  graphics::abline(0, 1, lty = 3)
  invisible(x)
}

# The folder of a run, of its object or its path.
folder_of <- function(run) {
  if (inherits(run, "hubbub_synthetic")) return(run$run$folder)
  if (inherits(run, "hubbub_run")) return(run$folder)
  if (inherits(run, "hubbub_statistics")) return(attr(run, "run")$folder)
  if (is.character(run) && length(run) == 1) return(path.expand(run))
  refuse(
    "expected a run, or the path of its folder, got ", class(run)[1], "; hand one over",
    class = "hubbub_bad_input"
  )
}

#' Score new rows with a run's model
#'
#' @param run A run of [hubbub_run()], or the path of its folder.
#' @param newdata A data frame with the study's columns, or the path of a CSV or Parquet file.
#' @param trust_code Whether code that the study names may run here.
#' @param object,... As `run`, and arguments for `hubbub_predict`.
#' @return A data frame with a row for each row of `newdata`: its number `row`, and the scores.
#' @examples
#' \dontrun{
#' hubbub_predict("runs/first", data.frame(age = c(50, 80), sex = "F", treatment = "new"))
#' }
#' @export
hubbub_predict <- function(run, newdata, trust_code = FALSE) {
  odd <- list()
  if (is.data.frame(newdata)) {
    dir.create(folder <- tempfile("rows-"), mode = "0700")
    on.exit(unlink(folder, recursive = TRUE))
    path <- file.path(folder, "newdata.csv")
    table <- as.list(as.data.frame(newdata)) # in which a name may stand twice, which the command refuses
    plain <- vapply(table, is_plain, NA)
    write_table(table[plain], path, "newdata")
    odd <- table[!plain] # such as days, which few models need
  } else if (is.character(newdata) && length(newdata) == 1) path <- path.expand(newdata) else {
    refuse(
      "expected a data frame, or the path of a CSV or Parquet file, got ", class(newdata)[1], " of length ",
      length(newdata), "; hand one over",
      class = "hubbub_bad_input"
    )
  }
  words <- c("predict", folder_of(run), path, options_of(trust_code = trust_code))
  columns <- tryCatch(ask_command(words)$columns, hubbub_bad_input = function(error) {
    for (name in names(odd)) if (grepl(sprintf("'%s'", name), conditionMessage(error), fixed = TRUE)) spelled(odd[[name]], name, "newdata")
    stop(error)
  })
  columns[lengths(columns) == 0] <- list(logical()) # of no rows
  as.data.frame(columns, stringsAsFactors = FALSE, optional = TRUE)
}

#' @rdname hubbub_predict
#' @importFrom stats predict
#' @export
predict.hubbub_run <- function(object, newdata, ...) hubbub_predict(object, newdata, ...)

#' Verify a run
#'
#' Recomputes everything that can be recomputed from the folder of a run. If a claim does not hold it is
#' an error of class `hubbub_refusal`, whose field `findings` has all of them.
#'
#' @param run A run of [hubbub_run()], or the path of its folder or of a file evidence.json.
#' @param thorough Also make accounts again that take long.
#' @return A `hubbub_findings`: a data frame with a row for each `claim` and its `verdict`.
#' @examples
#' \dontrun{
#' hubbub_verify("runs/first")
#' }
#' @export
hubbub_verify <- function(run, thorough = FALSE) {
  answer <- ask_command(c("verify", folder_of(run), options_of(thorough = thorough)))
  findings <- frame_of(answer$findings, c("claim", "verdict"))
  class(findings) <- c("hubbub_findings", "data.frame")
  if (!answer$holds) {
    wrong <- startsWith(findings$verdict, "wrong")
    refuse(
      paste0(findings$claim[wrong], "? ", findings$verdict[wrong], collapse = "\n"),
      class = "hubbub_refusal", status = 1L, more = list(findings = findings)
    )
  }
  if (!answer$complete) warn("not all was checked: some would take long; thorough = TRUE does it all the same")
  findings
}

#' @export
print.hubbub_findings <- function(x, ...) {
  for (verdict in unique(x$verdict)) {
    cat(verdict, "\n", sep = "")
    cat(strwrap(x$claim[x$verdict == verdict], indent = 2, exdent = 4), sep = "\n")
  }
  invisible(x)
}

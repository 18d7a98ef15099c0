# A model: drafted, interrupted, trained, used.

skip_without_hubbub()

test_that("what tables cannot say is asked, in R's words", {
  error <- tryCatch(hubbub_init(sites), hubbub_questions = identity)
  expect_match(error$message, 'target = "died": predict', fixed = TRUE)
  expect_match(error$message, 'time = "months", event = "died": predict', fixed = TRUE)
  expect_length(error$questions, 1)
})

test_that("a run that is interrupted goes on, and its model scores new rows", {
  study <- hubbub_init(sites, died ~ age + treatment, file = file.path(tempdir(), "a draft.toml"))
  expect_match(study$private, "categories of treatment", all = FALSE)
  text <- readLines(study$path)
  expect_false(any(grepl("^(months|sex) ", text)))
  writeLines(sub("^steps = .*", "steps = 20", text), study$path)
  out <- file.path(tempdir(), "a run")
  stop_once <- function(condition) if (grepl("step 4 of 20", conditionMessage(condition))) tools::pskill(Sys.getpid(), tools::SIGINT)
  error <- withCallingHandlers(
    tryCatch(hubbub_run(study, out = out), hubbub_error = identity),
    hubbub_progress = function(condition) {
      stop_once(condition)
      invokeRestart("muffleMessage")
    }
  )
  expect_s3_class(error, "hubbub_interrupted")
  expect_match(error$message, "interrupted")
  said <- capture_messages(run <- hubbub_run(study, out = out))
  expect_match(said, "^resuming: step ", all = FALSE)
  # What was interrupted may be an attempt, which is charged and has no step.
  expect_true(run$final$step %in% 19:20)
  expect_gt(nrow(summary(run)), 0)
  rows <- predict(run, data.frame(age = c(40, 85, NA), treatment = factor(c("new", "usual", "new"))))
  expect_identical(names(rows), c("row", "score", "predicted"))
  expect_true(all(rows$score >= 0 & rows$score <= 1))
  # A day that the model does not need is left out, one that it needs is refused as what it is.
  seen <- data.frame(age = 40, treatment = "new", seen = as.Date("2024-05-31"), at = Sys.time())
  expect_identical(predict(run, seen)$score, rows$score[1])
  seen$age <- seen$seen
  expect_error(predict(run, seen), "in column 'age' of newdata, found Date", class = "hubbub_bad_input")
  for (wrong in list(as.matrix(seen), c("a.csv", "b.csv"), NULL, list(age = 40))) {
    expect_error(predict(run, wrong), "expected a data frame, or the path", class = "hubbub_bad_input")
  }
  expect_error(predict(run, cbind(seen, seen)), "empty or repeated name", class = "hubbub_bad_input")
  expect_identical(dim(predict(run, data.frame(age = numeric(), treatment = character()))), c(0L, 3L))
  expect_error(predict(run, data.frame(age = 40)), "expected a column 'treatment' in newdata.csv", class = "hubbub_bad_input")
  expect_output(print(run), "epsilon 1 at delta 1e-05", fixed = TRUE)
  expect_identical(hubbub_read(run)$final, run$final)
  expect_error(hubbub_read(c(out, out)), "expected a run, or the path of its folder", class = "hubbub_bad_input")
})

test_that("a draft takes columns as they are, and refuses what it would leave out", {
  for (formula in list(
    died ~ log(age), died ~ age * sex, died ~ age + agee, Surv(age, months, died) ~ sex, cut(age, 3) ~ sex,
    died == "yes" ~ age, died ~ age - 1, died ~ age + strata(sex)
  )) {
    expect_error(hubbub_init(sites, formula), "^expected .*, got ", class = "hubbub_bad_input")
  }
  odd <- lapply(sites, function(table) stats::setNames(table[c("age", "died")], c("a \"b\"", "if")))
  expect_match(readLines(hubbub_init(odd, `if` ~ `a "b"`)$path), 'a \\\\"b\\\\"', all = FALSE)
  expect_false(any(grepl("^(sex|site) ", readLines(hubbub_init(sites, died ~ . - sex - site)$path))))
})

test_that("folders are those of R, whether they are there or not", {
  dir.create(folder <- tempfile("a folder-"))
  here <- setwd(folder)
  on.exit(setwd(here))
  study <- hubbub_study(sites, q = hubbub_ask("table", ~age), columns = columns["age"], epsilon = 1)
  run <- hubbub_run(study, out = "runs/first", ledgers = "paid", progress = FALSE)
  expect_identical(run$folder, file.path(normalizePath(folder), "runs", "first"))
  expect_true(file.exists(file.path(folder, "paid", "north.sqlite")))
  expect_message(hubbub_run(study, out = "runs/first", ledgers = "paid"), "read again at no cost")
})

test_that("other records under the same study are not answered with those of before", {
  dir.create(folder <- tempfile("files-"))
  here <- setwd(folder)
  on.exit(setwd(here))
  for (site in names(sites)) utils::write.csv(sites[[site]]["age"], paste0(site, ".csv"), row.names = FALSE, na = "")
  hubbub_study(names(sites), q = hubbub_ask("table", ~age), columns = columns["age"], epsilon = 1, records = 2200, file = "study.toml")
  hubbub_run("study.toml", out = "runs/first", progress = FALSE)
  expect_message(hubbub_run("study.toml", out = "runs/first"), "read again at no cost")
  refused <- function(...) {
    expect_error(hubbub_run("study.toml", out = "runs/first", progress = FALSE, ...), "expected an empty or new folder", class = "hubbub_bad_input")
  }
  refused(epsilon = 0.5)
  writeLines(c("age", "31"), "north.csv")
  refused()
})

test_that("which run a folder is of follows from the files that the study names, however it does", {
  dir.create(folder <- tempfile("a [folder]-"))
  study <- list(path = file.path(folder, "study.toml"), folder = folder)
  digest <- function(...) hubbub:::digest_of_run(study, c(...))
  for (line in c("files = '{name}.csv' # so", 'files = "{name}.csv"', '  files="parts-{name}/"')) {
    writeLines(c("[data]", line), study$path)
    dir.create(file.path(folder, "parts-north"), showWarnings = FALSE)
    seen <- vapply(c("1", "2"), function(cells) {
      for (file in c("north.csv", "parts-north/part.parquet")) writeLines(cells, file.path(folder, file))
      digest()
    }, "")
    expect_false(seen[["1"]] == seen[["2"]], info = line)
    expect_identical(digest(), seen[["2"]])
    expect_false(digest("--epsilon=0.5") == digest())
    expect_identical(digest("--progress", "--device=cpu"), digest())
  }
})

test_that("a study that is not there is refused in the command's words", {
  expect_error(hubbub_run(tempfile()), "expected a readable study file", class = "hubbub_bad_input")
})

test_that("whoever leaves by a handler of their own leaves no process behind", {
  skip_on_os("windows")
  study <- hubbub_init(sites, died ~ age)
  writeLines(sub("^steps = .*", "steps = 3000", readLines(study$path)), study$path)
  out <- file.path(tempdir(), "left behind")
  said <- tryCatch(hubbub_run(study, out = out), hubbub_progress = conditionMessage)
  expect_match(said, "step")
  expect_false(any(grepl("left behind", system2("ps", c("-eo", "args"), stdout = TRUE), fixed = TRUE)))
})

test_that("a command of another version, or without its Python, is said to be so", {
  skip_on_os("windows")
  program <- tempfile("hubbub-")
  options(hubbub.command = program)
  on.exit(options(hubbub.command = NULL))
  says <- function(...) {
    writeLines(c(...), program)
    Sys.chmod(program, "0700")
    tryCatch(hubbub_plan("study.toml"), hubbub_error = identity)
  }
  error <- says("#!/bin/sh", 'test "$1" = --version && echo hubbub 0.1.9 || { echo "hubbub: unrecognized arguments: --json" >&2; exit 2; }')
  expect_match(error$message, "is version 0.1.9, this package 0.2.0: install both of one version", fixed = TRUE)
  error <- says("#!/nowhere/python")
  expect_s3_class(error, "hubbub_bad_input")
  expect_match(error$message, "to start, it does not")
  expect_s3_class(says("#!/bin/sh", "kill -INT $$"), "hubbub_interrupted")
  error <- says("#!/bin/sh", "echo Traceback >&2; exit 1")
  expect_false(inherits(error, "hubbub_refusal"))
})

test_that("a trial's values have names", {
  expect_error(hubbub_plan("study.toml", set = list(5)), "expected values by name", class = "hubbub_bad_input")
})

test_that("options keep their digits and stay what they are", {
  words <- hubbub:::options_of(records = 1e5, epsilon = 0.1 + 0.2, patient = "--yes", replace = TRUE, tidy = FALSE, codes = c("a", "b"))
  expect_identical(words, c("--records=100000", "--epsilon=0.30000000000000004", "--patient=--yes", "--replace", "--codes=a,b"))
  expect_identical(hubbub:::options_of(ledgers = "x"), paste0("--ledgers=", file.path(getwd(), "x")))
  expect_identical(hubbub:::options_of(log = "jsonl:a b"), paste0("--log=jsonl:", file.path(getwd(), "a b")))
  for (log in c("jsonl", "tensorboard:/x", "mlflow:https://x")) expect_identical(hubbub:::options_of(log = log), paste0("--log=", log))
})

test_that("without the command there is a sentence", {
  old <- options(hubbub.command = "/nowhere/hubbub")
  path <- Sys.getenv("PATH")
  on.exit({
    options(old)
    Sys.setenv(PATH = path)
  })
  for (missing in list("/nowhere/hubbub", NA, "")) {
    options(hubbub.command = missing)
    if (is.na(missing) || missing == "") Sys.setenv(PATH = "/nowhere")
    place <- if (identical(missing, "/nowhere/hubbub")) "at /nowhere/hubbub" else "on the PATH"
    expect_error(hubbub_plan("study.toml"), paste("expected the command hubbub", place), class = "hubbub_bad_input")
  }
})

test_that("a command that says nothing, something else, or dies is an error of its own", {
  skip_on_os("windows")
  for (program in list("false", "echo", c("sh", "-c", "kill -9 $$"))) {
    old <- options(hubbub.command = program)
    expect_error(hubbub_plan("study.toml"), "expected an answer of .*its exit code was", class = "hubbub_error")
    options(old)
  }
})

test_that("options are said as R has them", {
  expect_match(
    tryCatch(hubbub_init(sites, died ~ age, file = hubbub_study(sites, q = hubbub_ask("table"), columns = columns, epsilon = 1)$path), hubbub_error = conditionMessage),
    "--replace is the argument replace", fixed = TRUE
  )
})

test_that("a command may be named from where one is", {
  command <- hubbub_command()
  here <- setwd(dirname(command[1]))
  old <- options(hubbub.command = c(file.path(".", basename(command[1])), command[-1]))
  on.exit({
    options(old)
    setwd(here)
  })
  expect_identical(hubbub_command(), command)
  study <- hubbub_study(sites, q = hubbub_ask("table"), columns = columns, epsilon = 1)
  expect_s3_class(hubbub_plan(study), "hubbub_plan")
})

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
  expect_error(predict(run, data.frame(age = 40)), "expected a column 'treatment' in newdata.csv", class = "hubbub_bad_input")
  expect_output(print(run), "epsilon 1 at delta 1e-05", fixed = TRUE)
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
    expect_error(hubbub_plan("study.toml"), "expected the command hubbub on the PATH", class = "hubbub_bad_input")
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

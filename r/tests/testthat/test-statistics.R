# Answers, from the command to data frames and figures.

skip_without_hubbub()
study <- hubbub_study(
  sites,
  baseline = hubbub_ask("table", ~ age + sex | treatment),
  survival = hubbub_ask("survival", Surv(months, died) ~ treatment, bins = 12, horizon = 36, test = "log-rank"),
  hazards = hubbub_ask("cox", Surv(months, died) ~ treatment + cut(age, c(-Inf, 60, 75, Inf)), bins = 12, horizon = 36),
  columns = columns, epsilon = 40, name = "follow-up"
)
answers <- hubbub_statistics(study, progress = FALSE)

test_that("R's numbers equal Python's to the last bit", {
  python <- Sys.getenv("HUBBUB_PYTHON")
  skip_if_not(nzchar(python), "HUBBUB_PYTHON names a Python that has hubbub")
  script <- tempfile(fileext = ".py")
  writeLines(c(
    "import struct, sys", "from pathlib import Path",
    "from hubbub.desk.cli.terminal import read_answers",
    "for answer in read_answers(Path(sys.argv[1])).values():",
    "    for key in ('value', 'standard_error', 'low', 'high', 'p_value'):",
    "        for row in answer['rows']:",
    "            print('NA' if row[key] is None else struct.pack('>d', row[key]).hex())",
    "    for key in ('x', 'y', 'low', 'high', 'band_low', 'band_high', 'at_risk', 'at_risk_error'):",
    "        for curve in answer['curves']:",
    "            for value in curve[key]:",
    "                print(struct.pack('>d', value).hex())"
  ), script)
  theirs <- system2(python, c(shQuote(script), shQuote(attr(answers, "run")$folder)), stdout = TRUE)
  bits <- function(values) {
    vapply(values, function(value) {
      if (is.na(value)) "NA" else paste(writeBin(value, raw(), endian = "big"), collapse = "")
    }, "", USE.NAMES = FALSE)
  }
  ours <- unlist(lapply(unclass(answers), function(answer) {
    c(
      lapply(answer$rows[c("value", "standard_error", "low", "high", "p_value")], bits),
      lapply(answer$curves[c("x", "y", "low", "high", "band_low", "band_high", "at_risk", "at_risk_error")], bits)
    )
  }), use.names = FALSE)
  expect_gt(length(theirs), 300)
  expect_identical(ours, theirs)
})

test_that("at a large epsilon the curve is Kaplan and Meier's of all records together", {
  skip_if_not_installed("survival")
  fit <- survival::survfit(survival::Surv(months, died == "yes") ~ treatment, hubbub::clinics)
  for (group in c("usual", "new")) {
    curve <- answers$survival$curves[answers$survival$curves$group == group, ]
    pooled <- summary(fit[paste0("treatment=", group)], times = curve$x[-1])$surv
    expect_lt(max(abs(curve$y[-1] - pooled)), 0.03)
    expect_true(all(curve$low[-1] < pooled & pooled < curve$high[-1]))
  }
})

test_that("answers are data frames with intervals", {
  rows <- as.data.frame(answers)
  expect_setequal(rows$statistic, c("baseline", "survival", "hazards"))
  expect_true(all(rows$low <= rows$value & rows$value <= rows$high))
  expect_identical(nrow(as.data.frame(answers$survival, part = "curves")), 39L)
  expect_identical(as.data.frame(answers$survival, part = "tests")$name, "log-rank")
  expect_identical(nrow(as.data.frame(answers$hazards, part = "curves")), 0L)
  expect_identical(summary(answers)$answered, c(TRUE, TRUE, TRUE))
})

test_that("a table has its groups side by side", {
  shown <- summary(answers$baseline)
  expect_true(all(c("all", "usual", "new") %in% names(shown)))
  expect_match(shown$usual[shown$quantity == "mean"], "^6[0-9.]+ \\([0-9.]+ to [0-9.]+\\)$")
  expect_output(print(answers), "epsilon 40 at delta 1e-05 against the aggregator + 1 silo", fixed = TRUE)
  expect_output(print(answers), "2200, was read from the tables and counts as public", fixed = TRUE)
})

test_that("a regression has coefficients and their intervals", {
  effects <- coef(answers$hazards)
  limits <- confint(answers$hazards)
  expect_length(effects, 3)
  expect_equal(unname(exp(effects)), answers$hazards$rows$value)
  expect_true(all(limits[, 1] < effects & effects < limits[, 2]))
  expect_identical(colnames(limits), c("2.5 %", "97.5 %"))
  expect_error(confint(answers$hazards, level = 0.9), "ask with confidence = 0.9", class = "hubbub_bad_input")
  expect_error(coef(answers$baseline), "expected a regression", class = "hubbub_bad_input")
})

test_that("every answer is drawn", {
  path <- tempfile(fileext = ".svg")
  grDevices::svg(path)
  for (name in names(answers)) expect_identical(plot(answers[[name]]), answers[[name]])
  plot(answers$survival, band = TRUE, groups = "new", col = "red", main = "Survival")
  grDevices::dev.off()
  expect_gt(file.size(path), 5000)
  expect_error(plot(answers$baseline, quantity = "median"), "expected a quantity of", class = "hubbub_bad_input")
  expect_error(plot(answers$survival, groups = "nwe"), "expected groups out of .*, got nwe", class = "hubbub_bad_input")
})

test_that("the same study is not asked again, and other records are", {
  said <- capture_messages(again <- hubbub_statistics(study))
  expect_match(said, "read again at no cost")
  expect_identical(as.data.frame(again), as.data.frame(answers))
  home <- tempfile("home with spaces-")
  first <- ask(hubbub_ask("table", ~age), out = file.path(home, "run"))
  expect_identical(as.data.frame(ask(hubbub_ask("table", ~age), out = file.path(home, "run"))), as.data.frame(first))
  others <- sites
  others$north$age[1] <- 36
  expect_error(
    ask(hubbub_ask("table", ~age), others, out = file.path(home, "run")),
    "expected an empty or new folder for the run", class = "hubbub_bad_input"
  )
})

test_that("a plan says what each adversary learns and how exact answers will be", {
  plan <- hubbub_plan(study)
  expect_identical(plan$adversaries$adversary[plan$adversaries$promised], "aggregator + 1 silo")
  expect_identical(plan$statistics$statistic, c("baseline", "survival", "hazards"))
  expect_true(all(plan$statistics$answered))
  expect_lt(hubbub_plan(study, epsilon = 0.2)$adversaries$epsilon[4], 0.2001)
  expect_output(print(plan), "survival: answered: yes; curve of a group known to")
})

test_that("errors are the command's own sentences", {
  refused <- function(code) tryCatch(code, hubbub_error = identity)
  error <- refused(ask(hubbub_ask("table", ~ agee)))
  expect_s3_class(error, "hubbub_bad_input")
  expect_match(error$message, "to be different columns out of age, sex, treatment, months, died, got \\[\"agee\"\\]")
  shell <- system2(error$command[1], shQuote(c(error$command[-1])), stderr = TRUE, stdout = TRUE)
  # The study's file is there as long as the session.
  expect_identical(sub("^hubbub: ", "", utils::tail(shell, 1)), error$message)
  expect_identical(error$status, 2L)
  tables <- lapply(sites, function(table) table[names(table) != "age"])
  expect_match(refused(ask(hubbub_ask("table", ~age), tables))$message, "expected a column 'age' in north.csv")
})

test_that("a budget that is used up refuses", {
  out <- tempfile("home-")
  ask(hubbub_ask("table", ~age), cap = 2, out = file.path(out, "one"))
  error <- tryCatch(ask(hubbub_ask("table", ~sex), cap = 2, out = file.path(out, "two")), hubbub_error = identity)
  expect_s3_class(error, "hubbub_refusal")
  expect_match(error$message, "expected at most epsilon 2 at delta 1e-05 on this data set")
})

test_that("faults of tables are listed", {
  expect_identical(nrow(hubbub_check(study)), 0L)
  tables <- sites
  tables$north$sex[3] <- "female"
  faults <- hubbub_check(hubbub_study(tables, q = hubbub_ask("table", ~sex), columns = columns["sex"], epsilon = 1))
  expect_identical(faults$column, "sex")
  expect_true(faults$refused)
})

test_that("factors and tibbles are taken", {
  tables <- lapply(sites, function(table) {
    table$sex <- factor(table$sex, labels = c("F", "M"))
    table$died <- table$died == "yes"
    if (requireNamespace("tibble", quietly = TRUE)) tibble::as_tibble(table) else table
  })
  answer <- ask(hubbub_ask("survival", Surv(months, died) ~ sex), tables, public = columns[c("sex", "months")])$q
  expect_identical(answer$refusal, "")
})

test_that("verify finds what was altered", {
  expect_true(all(hubbub_verify(answers)$verdict %in% c("re-derived", "signed", "not verifiable")))
  copy <- tempfile("copy-")
  dir.create(copy)
  file.copy(attr(answers, "run")$folder, copy, recursive = TRUE)
  folder <- list.files(copy, full.names = TRUE)
  path <- file.path(folder, "statistics.json")
  text <- readLines(path)
  writeLines(sub('"low": 6', '"low": 5', text), path)
  error <- tryCatch(hubbub_verify(folder), hubbub_refusal = identity)
  expect_match(error$message, "statistics.json.*wrong: ")
  expect_true(any(startsWith(error$findings$verdict, "wrong")))
})

test_that("the folder of a run is read wherever it comes from", {
  run <- hubbub_read(attr(answers, "run")$folder)
  expect_identical(as.data.frame(run$statistics), as.data.frame(answers))
  expect_lte(run$epsilon, 40)
  expect_error(hubbub_read(tempfile()), "expected the folder of a run", class = "hubbub_bad_input")
})

# Formulas become the keys that docs/statistics.md shows. None of this needs the command.

expect_keys <- function(question, ...) {
  lines <- study_lines(question)
  for (line in c(...)) expect_true(line %in% lines, info = paste(c(line, lines), collapse = "\n"))
}

test_that("a table has columns, and groups behind a bar", {
  expect_keys(hubbub_ask("table", ~ age + sex | treatment), 'columns = ["age", "sex"]', 'by = "treatment"')
  expect_false(any(grepl("^by", study_lines(hubbub_ask("table", ~ age + sex)))))
  expect_keys(
    hubbub_ask("table", ~ sex + cut(age, c(-Inf, 60, 75, Inf)) | cut(months, c(-Inf, 12, Inf))),
    'columns = ["sex", { age = [60, 75] }]', "by = { months = [12] }"
  )
  expect_keys(hubbub_ask("table", ~.), 'columns = ["age", "sex", "treatment", "months", "died"]')
})

test_that("Surv() is time and event, and an entry before them", {
  expect_keys(
    hubbub_ask("survival", Surv(months, died) ~ treatment, horizon = 36, at = 12),
    'time = "months"', 'event = "died"', 'by = "treatment"', "horizon = 36", "at = [12]"
  )
  expect_keys(
    hubbub_ask("survival", survival::Surv(age, months, died == "yes") ~ 1),
    'entry = "age"', 'time = "months"', 'event = "died"'
  )
  expect_keys(hubbub_ask("survival", Surv(time = months, event = died) ~ 1), 'time = "months"')
})

test_that("an event is the second of two categories", {
  expect_error(
    study_lines(hubbub_ask("survival", Surv(months, died == "no") ~ 1)),
    "expected 'no' to be the second of two categories", class = "hubbub_bad_input"
  )
  public <- columns
  public$died <- c(0, 1)
  lines <- study_lines(hubbub_ask("survival", Surv(months, died) ~ 1), public)
  expect_true('died = { categories = ["0", "1"] }' %in% lines)
})

test_that("a regression has covariates, pairs and strata", {
  expect_keys(
    hubbub_ask("cox", Surv(months, died) ~ treatment * sex + cut(age, c(-Inf, 60, Inf)) + strata(sex)),
    'covariates = { treatment = "categories", sex = "categories", age = [60] }',
    'interactions = [["treatment", "sex"]]', 'strata = "sex"'
  )
  expect_keys(hubbub_ask("linear", months ~ age), 'outcome = "months"', 'covariates = { age = "number" }')
  expect_keys(
    hubbub_ask("logistic", died ~ factor(treatment), reference = list(treatment = "new")),
    'covariates = { treatment = "categories" }', 'reference = { treatment = "new" }'
  )
})

test_that("a regression has what its formula has in R, or is refused", {
  for (formula in list(
    died ~ treatment:sex, died ~ treatment / sex, died ~ treatment * sex - sex, died ~ age + cut(age, c(-Inf, 60, Inf)),
    died ~ sex + factor(sex), ~ sex
  )) {
    expect_error(study_lines(hubbub_ask("logistic", formula)), "^expected .*, got .*~", class = "hubbub_bad_input")
  }
  expect_keys(hubbub_ask("logistic", died ~ treatment:sex + treatment + sex), 'interactions = [["treatment", "sex"]]')
})

test_that("other kinds read their formulas", {
  expect_keys(hubbub_ask("quantiles", months ~ 1), 'column = "months"')
  expect_keys(hubbub_ask("quantiles", months ~ sex), 'column = "months"', 'by = "sex"')
  expect_keys(hubbub_ask("histogram", ~age), 'column = "age"')
  expect_keys(hubbub_ask("crosstab", ~ treatment + died), 'rows = "treatment"', 'columns = "died"')
  expect_keys(hubbub_ask("centres", died ~ sex), 'outcome = "died"', 'by = "sex"')
})

test_that("all that a formula names is in the question, or refused", {
  expect_place <- function(kind, formula, what) {
    expect_error(study_lines(hubbub_ask(kind, formula)), paste("it has no place for", what), class = "hubbub_bad_input")
  }
  expect_place("survival", Surv(months, died) ~ treatment + sex, "sex")
  expect_place("survival", Surv(months, died) ~ sex | treatment, "sex")
  expect_place("rates", Surv(months, died) ~ treatment + sex, "sex")
  expect_place("histogram", ~ age + months, "months")
  expect_place("histogram", age ~ 1, "age")
  expect_place("quantiles", months ~ sex + treatment, "treatment")
  expect_place("centres", died ~ sex + age, "age")
  expect_place("table", died ~ age, "died")
  expect_place("table", ~ age:sex, "pairs of columns")
  expect_place("logistic", died ~ age | sex, "sex")
  expect_keys(hubbub_ask("table", ~ . - sex - age), 'columns = ["treatment", "months", "died"]')
  expect_keys(hubbub_ask("logistic", died ~ factor(age)), 'covariates = { age = "categories" }')
})

test_that("a question has a kind and keys by name", {
  expect_error(hubbub_ask(5, ~age), "expected a kind, a formula, and keys by name", class = "hubbub_bad_input")
  for (wrong in expression(hubbub_ask("table", ~age, 10), hubbub_ask("histogram", ~age, bins = 3, bins = 4))) {
    expect_error(eval(wrong), "expected a kind, a formula, and keys by name", class = "hubbub_bad_input")
  }
})

test_that("what sites would have to compute is refused", {
  for (formula in list(
    Surv(months, died) ~ log(age), Surv(months, died) ~ cut(age, 3), died ~ treatment,
    Surv(months, died) ~ cut(age, c(-Inf, 60, Inf), right = TRUE), Surv(months) ~ sex,
    Surv(months, died) ~ cut(age, c(-Inf, 60, Inf), right = nowhere), Surv(months, died) ~ cut(age, c(-Inf, NA, Inf)),
    Surv(months, died) ~ sex:treatment:age
  )) {
    expect_error(study_lines(hubbub_ask("cox", formula)), "^expected .*, got ", class = "hubbub_bad_input")
  }
  for (formula in list(
    Surv(months, died) ~ age + strata(sex, treatment), Surv(months, died) ~ age + strata(sex) + strata(treatment),
    Surv(months, died) ~ age - 1, Surv(months, died) ~ offset(age), Surv(months, died) ~ sex | treatment,
    Surv(months, died) ~ factor(sex, levels = c("M", "F")), cut(months, c(-Inf, 9, Inf)) ~ age,
    Surv(months, died) ~ cut(age, c(-Inf, 60, Inf), labels = c("young", "old")), Surv(months, died, type = "right") ~ age
  )) {
    expect_error(study_lines(hubbub_ask("cox", formula)), "^expected .*, got ", class = "hubbub_bad_input")
  }
  expect_error(hubbub_ask("cox", "age"), "expected a formula", class = "hubbub_bad_input")
  expect_error(study_lines(~age), "expected questions of hubbub_ask", class = "hubbub_bad_input")
})

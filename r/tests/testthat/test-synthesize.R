skip_without_hubbub()

test_that("synthetic records have the types of their columns, and shares with intervals", {
  synthetic <- hubbub_synthesize(
    sites, columns = columns[c("sex", "died")], targets = "died", epsilon = 20, progress = FALSE, records = 500
  )
  expect_identical(nrow(as.data.frame(synthetic)), 500L)
  expect_identical(levels(synthetic$records$died), c("no", "yes"))
  shares <- summary(synthetic)
  truth <- mean(hubbub::clinics$sex == "F")
  expect_lt(abs(shares$value[shares$column == "sex" & shares$level == "F"] - truth), 0.05)
  tables <- hubbub_tables(synthetic, count = 5)
  expect_length(tables, 5)
  combined <- hubbub_combine(sapply(tables, function(table) mean(table$sex == "F", na.rm = TRUE)))
  expect_lt(abs(combined[["value"]] - truth), 0.05)
  expect_output(print(synthetic), "500 synthetic records; intervals of one analysis of them are too narrow")
})

test_that("results of several tables are combined as docs/synthetic.md says", {
  fits <- c(1, 2, 3, 4, 6)
  error <- sqrt((1 + 1 / 5) * var(fits))
  expect_equal(unname(hubbub_combine(fits)), c(3.2, error, 3.2 + c(-1, 1) * qt(0.975, 4) * error))
  for (wrong in list(fits[1:4], c(fits, NA), c(fits, Inf), as.character(fits), diag(5))) {
    expect_error(hubbub_combine(wrong), "expected 5 finite estimates or more, one of each table", class = "hubbub_bad_input")
  }
})

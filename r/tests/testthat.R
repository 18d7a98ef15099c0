library(testthat)
library(hubbub)

test_check("hubbub")

// Covariance and correlation matrices and their factors, directions.
data {
  int<lower=1> N;
  array[N] vector[3] y;
  matrix[3, 3] scale;
}
parameters {
  cov_matrix[3] Sigma;
  corr_matrix[3] Omega;
  cholesky_factor_cov[3] L;
  array[2] cholesky_factor_corr[3] F;
  unit_vector[3] u;
  vector[3] mu;
}
model {
  Sigma ~ inv_wishart(5, scale);
  Omega ~ lkj_corr(1.5);
  F[1] ~ lkj_corr_cholesky(0.7);
  F[2] ~ lkj_corr_cholesky(1);
  to_vector(L) ~ normal(0, 2);
  y ~ multi_normal(mu, Sigma);
  y[1] ~ multi_normal_prec(mu, quad_form_diag(Omega, [1, 2, 0.5]'));
  y[2] ~ multi_student_t(4, mu, tcrossprod(L));
  mu ~ normal(3 * u, 1);
}

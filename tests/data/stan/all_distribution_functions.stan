// Distribution functions: the derivative by a weight is the value of its term.
data {
  int N;
  array[3] int c;
  array[3] int b;
  array[3] int k3;
  array[3] real xs;
  vector[3] dv;
  matrix[3,3] dM;
  array[4] int mn;
  array[3] vector[2] pts;
  matrix[3,2] X;
  array[2] int ab;
}
parameters {
  vector[38] w;
  real a;
  real<lower=0> p;
  real<lower=0> q;
  real<lower=0,upper=1> u;
  real<lower=0,upper=1> u2;
  vector[3] v;
  vector<lower=0>[3] pv;
  vector<lower=0,upper=1>[3] uv;
  simplex[4] s;
  ordered[2] o2;
  matrix[3,3] A;
  cholesky_factor_cov[3] L;
  cov_matrix[3] S;
  vector[2] z2;
  row_vector[3] r;
  corr_matrix[3] C;
  matrix[2,3] B23;
  ordered[3] o3;
}
model {
  target += w[1] * (lognormal_lcdf(pv | a, p));
  target += w[2] * (lognormal_lccdf(pv | a, p));
  target += w[3] * (logistic_lcdf(v | a, p));
  target += w[4] * (logistic_lccdf(v | a, p));
  target += w[5] * (cauchy_lcdf(v | a, p));
  target += w[6] * (cauchy_lccdf(v | a, p));
  target += w[7] * (double_exponential_lcdf(v | a, p));
  target += w[8] * (double_exponential_lccdf(v | a, p));
  target += w[9] * (student_t_lcdf(v | p, a, q));
  target += w[10] * (student_t_lccdf(v | 3, a, q));
  target += w[11] * (exponential_lcdf(pv | p));
  target += w[12] * (exponential_lccdf(pv | p));
  target += w[13] * (weibull_lcdf(pv | p, q));
  target += w[14] * (weibull_lccdf(pv | p, q));
  target += w[15] * (rayleigh_lcdf(pv | p));
  target += w[16] * (rayleigh_lccdf(pv | p));
  target += w[17] * (pareto_lcdf(pv+3 | p*0.1, q));
  target += w[18] * (pareto_lccdf(pv+3 | p*.1, q));
  target += w[19] * (pareto_type_2_lcdf(pv+p | 0.1*p, p, q));
  target += w[20] * (pareto_type_2_lccdf(pv+p | 0.1*p, p, q));
  target += w[21] * (gumbel_lcdf(v | a, p));
  target += w[22] * (gumbel_lccdf(v | a, p));
  target += w[23] * (frechet_lcdf(pv | p, q));
  target += w[24] * (frechet_lccdf(pv | p, q));
  target += w[25] * (uniform_lcdf(uv | a-9, a+9));
  target += w[26] * (uniform_lccdf(uv | a-9, a+9));
  target += w[27] * (gamma_lcdf(pv | p, q));
  target += w[28] * (beta_lcdf(uv | p, q));
  target += w[29] * (beta_lccdf(uv | p, q));
  target += w[30] * (poisson_lcdf(c | pv));
  target += w[31] * (poisson_lccdf(c | pv));
  target += w[32] * (binomial_lcdf(c | N, u));
  target += w[33] * (binomial_lccdf(c | N, u));
  target += w[34] * (neg_binomial_2_lcdf(c | pv, q));
  target += w[35] * (neg_binomial_2_lccdf(c | pv, q));
  target += w[36] * (bernoulli_lcdf(b | u));
  target += w[37] * (bernoulli_lccdf(0 | u));
  target += w[38] * (normal_cdf(a | v, p));
}

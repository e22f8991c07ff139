// What Stan computes with fewer digits: the derivative by a weight is the value of its term.
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
  vector[13] w;
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
  target += w[1] * (ordered_probit_lpmf(k3 | v, o2));
  target += w[2] * (normal_lcdf(v | a, p));
  target += w[3] * (normal_lccdf(v | a, p));
  target += w[4] * (std_normal_lcdf(v));
  target += w[5] * (std_normal_lccdf(v));
  target += w[6] * (gamma_lccdf(pv | p, q));
  target += w[7] * (inv_gamma_lcdf(pv | p, q));
  target += w[8] * (inv_gamma_lccdf(pv | p, q));
  target += w[9] * (chi_square_lcdf(pv | p));
  target += w[10] * (chi_square_lccdf(pv | p));
  target += w[11] * (digamma(p));
  target += w[12] * (gamma_q(p, q));
  target += w[13] * (trigamma(p));
}

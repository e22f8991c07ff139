// Answers of persons to questions, by ability, discrimination and difficulty.
data {
  int<lower=1> I;
  int<lower=1> J;
  array[I, J] int<lower=0, upper=1> y;
}
parameters {
  vector[J] theta;
  vector<lower=0>[I] a;
  vector[I] b;
  real<lower=0> spread;
}
model {
  theta ~ std_normal();
  a ~ lognormal(0, 0.5);
  spread ~ cauchy(0, 2);
  b ~ normal(0, spread);
  for (i in 1 : I) {
    y[i] ~ bernoulli_logit(a[i] * (theta - b[i]));
  }
}

//! Tests with a real control plane and real kubelets.

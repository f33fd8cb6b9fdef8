//! From layers to kernels: what eager PyTorch launches, one after another, for each layer.

mod backward;
mod forward;
mod graph;
mod optimizer;
mod recurrent;

use crate::Precision;
use crate::network::{Convolution, Layer, Mode, Network};
use crate::work::{Algorithm, Family, Kernel, Matrix, Stream, Work};

pub(crate) fn lower(network: &Network, mode: Mode, precision: Precision) -> Vec<Kernel> {
    let mut list = List {
        kernels: Vec::new(),
        precision,
    };
    for _ in 0..mode.passes() {
        for layer in &network.layers {
            forward::forward(&mut list, layer, mode);
        }
    }
    if mode.is_training() {
        train(&mut list, network, mode);
    }
    list.kernels
}

fn train(list: &mut List, network: &Network, mode: Mode) {
    for _ in 0..mode.passes() {
        for (index, layer) in network.layers.iter().enumerate().rev() {
            backward::backward(list, layer, index == 0);
        }
    }
    let parameters = || network.layers.iter().flat_map(Layer::parameters);
    for _ in 1..mode.passes() {
        for elements in parameters() {
            list.arithmetic("add_gradients", elements, 3.0);
        }
    }
    for elements in parameters() {
        optimizer::step(list, network.optimizer, elements);
    }
}

struct List {
    kernels: Vec<Kernel>,
    precision: Precision,
}

impl List {
    /// A pass over `elements` that reads and writes `arrays` arrays of that size.
    fn pass(&mut self, name: &str, family: Family, elements: f64, arrays: f64, flops: f64) {
        self.stream(
            name,
            Stream {
                family,
                elements,
                numbers: arrays * elements,
                flops: flops * elements,
            },
        );
    }

    /// An element-wise pass without arithmetic that a profiler would count.
    fn elementwise(&mut self, name: &str, elements: f64, arrays: f64) {
        self.pass(name, Family::Elementwise, elements, arrays, 0.0);
    }

    /// An element-wise pass with one floating-point operation for each element.
    fn arithmetic(&mut self, name: &str, elements: f64, arrays: f64) {
        self.pass(name, Family::Elementwise, elements, arrays, 1.0);
    }

    fn stream(&mut self, name: &str, stream: Stream) {
        let (elements, numbers) = (stream.elements, stream.numbers);
        self.kernels.push(Kernel {
            name: format!("{name}#e{elements}t{numbers}"),
            work: Work::Stream(stream),
        });
    }

    /// `batch` products of m x k with k x n.
    fn product(&mut self, name: &str, [batch, m, n, k]: [f64; 4]) {
        self.matrix(
            name,
            Matrix {
                algorithm: Algorithm::Product,
                batch,
                m,
                n,
                k,
                numbers: batch * (m * k + k * n + m * n),
            },
        );
    }

    fn matrix(&mut self, name: &str, matrix: Matrix) {
        let Matrix { batch, m, n, k, .. } = matrix;
        self.kernels.push(Kernel {
            name: format!("{name}#b{batch}m{m}n{n}k{k}"),
            work: Work::Matrix(matrix),
        });
    }

    /// A convolution's algorithm. Winograd's: 3 x 3 filters, stride 1, not on matrix units.
    fn convolution_algorithm(&self, layer: &Convolution) -> Algorithm {
        match (layer.filter, layer.stride, self.precision) {
            ([3, 3], 1, Precision::Fp32) => Algorithm::Winograd,
            _ => Algorithm::Convolution,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{densenet, inception, mobilenet, resnet, squeezenet, vgg, yolo};

    /// Of convolutions and products, 10^9.
    fn multiply_adds(network: &Network) -> f64 {
        let kernels = lower(network, Mode::Inference, Precision::Fp32);
        let flops = kernels.iter().map(|kernel| match kernel.work {
            Work::Matrix(matrix) => matrix.flops(),
            Work::Stream(stream) if stream.family == Family::Depthwise => stream.flops,
            Work::Stream(_) => 0.0,
        });
        flops.sum::<f64>() / 2.0 / 1e9
    }

    #[test]
    fn a_forward_pass_has_its_published_number_of_multiply_adds() {
        // torchvision's model table, which calls them GFLOPS. YOLOv5: its README has twice that.
        for (network, published) in [
            (resnet::resnet18(1), 1.81),
            (resnet::resnet50(1), 4.09),
            (resnet::resnet101(1), 7.80),
            (resnet::resnet152(1), 11.51),
            (resnet::wide_resnet101_2(1), 22.75),
            (vgg::vgg16(1), 15.47),
            (vgg::vgg19(1), 19.63),
            (densenet::densenet201(1), 4.29),
            (inception::inceptionv3(1), 5.71),
            (mobilenet::mobilenetv2(1), 0.30),
            (squeezenet::squeezenet(1), 0.35),
            (yolo::yolov5n(1), 4.5 / 2.0),
            (yolo::yolov5s(1), 16.5 / 2.0),
            (yolo::yolov5x(1), 205.7 / 2.0),
        ] {
            let computed = multiply_adds(&network);
            let error = (computed / published - 1.0).abs();
            assert!(error < 0.01, "{computed} instead of {published}");
        }
    }
}
